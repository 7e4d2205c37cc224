// BFS: breadth first through a random graph as Rodinia's generator makes it: each node names two to four others at random and every
// edge goes both ways, so a node has six on average. Two loops for each level, as Rodinia's: those reached last reach their
// neighbours, then these become those reached last. Costs are checked against a search by one thread.
#include "papers.h"

#define LEAST_EDGES 2
#define MOST_EDGES 4

static int nodes;
// Where the edges of a node begin, and where they go.
static int *first_edge, *edge;

static int one_of(uint64_t *state, int count) { return (int)(randlc(state) * count); }

// By one thread, as the original reads its file.
static void make_graph(void) {
    uint64_t state = RANDOM_SEED;
    int *count = malloc(sizeof(int) * nodes), *target = malloc(sizeof(int) * nodes * MOST_EDGES);
    first_edge = fresh(sizeof(int) * (nodes + 1));
    for (int node = 0; node < nodes; node++) {
        count[node] = LEAST_EDGES + one_of(&state, MOST_EDGES - LEAST_EDGES + 1);
        first_edge[node] += count[node];
        for (int at = 0; at < count[node]; at++) {
            int other = one_of(&state, nodes);
            target[node * MOST_EDGES + at] = other;
            first_edge[other]++;
        }
    }
    int edges = 0;
    for (int node = 0; node <= nodes; node++) {
        int here = node < nodes ? first_edge[node] : 0;
        first_edge[node] = edges;
        edges += here;
    }
    edge = fresh(sizeof(int) * edges);
    int *filled = calloc(nodes, sizeof(int));
    for (int node = 0; node < nodes; node++) {
        for (int at = 0; at < count[node]; at++) {
            int other = target[node * MOST_EDGES + at];
            edge[first_edge[node] + filled[node]++] = other;
            edge[first_edge[other] + filled[other]++] = node;
        }
    }
    free(count), free(target), free(filled);
}

static void search(int *cost, char *reached, char *next, char *visited) {
    for (bool more = true; more;) {
        more = false;
#pragma omp parallel
        {
#pragma omp for schedule(static)
            for (int node = 0; node < nodes; node++) {
                if (!reached[node])
                    continue;
                reached[node] = 0;
                for (int at = first_edge[node]; at < first_edge[node + 1]; at++) {
                    int other = edge[at];
                    if (!visited[other]) {
                        // All threads that come here in this level write the same.
                        __atomic_store_n(&cost[other], cost[node] + 1, __ATOMIC_RELAXED);
                        __atomic_store_n(&next[other], 1, __ATOMIC_RELAXED);
                    }
                }
            }
            bool found = false;
#pragma omp for schedule(static)
            for (int node = 0; node < nodes; node++) {
                if (!next[node])
                    continue;
                next[node] = 0, reached[node] = visited[node] = 1;
                found = true;
            }
            if (found)
                __atomic_store_n(&more, true, __ATOMIC_RELAXED);
        }
    }
}

static bool is_right(const int *cost) {
    int *known = malloc(sizeof(int) * nodes), *queue = malloc(sizeof(int) * nodes), head = 0, tail = 1;
    memset(known, -1, sizeof(int) * nodes);
    queue[0] = known[0] = 0;
    while (head < tail) {
        int node = queue[head++];
        for (int at = first_edge[node]; at < first_edge[node + 1]; at++)
            if (known[edge[at]] < 0) {
                known[edge[at]] = known[node] + 1;
                queue[tail++] = edge[at];
            }
    }
    for (int node = 0; node < nodes; node++) {
        if (cost[node] != known[node]) {
            printf("WRONG BFS: node %d costs %d, not %d\n", node, cost[node], known[node]);
            return false;
        }
    }
    free(known), free(queue);
    return true;
}

double run_bfs(char size) {
    nodes = size == 'S' ? 4096 : size == 'W' ? 65536 : 1000000;
    make_graph();
    int *cost = fresh(sizeof(int) * nodes);
    char *reached = fresh(nodes), *next = fresh(nodes), *visited = fresh(nodes);
    memset(cost, -1, sizeof(int) * nodes);
    cost[0] = 0, reached[0] = visited[0] = 1;
    double start = seconds();
    search(cost, reached, next, visited);
    double time = seconds() - start;
    return is_right(cost) ? time : -1;
}
