// The plugin of `cob bench scale` for QEMU's TCG (plugin API 1, as in QEMU 7.2; Debian packages no header for it, so what is used of it
// is declared here).
//
// Problem: a test machine of two cores can't show what makes a kernel stop scaling at sixteen. What does is known, though: a
// cache line that one CPU writes and another then needs has to travel, and two CPUs can't have it at once.
//
// Idea: follow every access of the guest to memory by physical line and CPU. Each line has the CPUs that hold it and the last that wrote
// it, as in a coherent cache of endless size: a write leaves its CPU as the only holder. A CPU that does not hold a line that another
// wrote has it brought: a *transfer*. A CPU that writes a line that others hold takes it from them: a *recall*. All this is
// between the marks START and STOP of a CPU (see marks.h), so neither boot nor waiting for the other CPUs is counted, and with CPUs
// that take turns in one thread of QEMU, so that the same input gives the same figures.
//
// Without -icount (`bench micro`) timer interrupts come by the clock of the host, which has nothing to do with how fast the guest is
// emulated: a thousand times too often for the work between them. What a CPU does from the entry that is named by skip= to the next return (`iretq`, `sysretq`) is therefore left out.
//
// Not seen: what the page walker of the CPU reads, and devices.
#include "../marks.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

// ---- what is used of QEMU's plugin API ----
typedef uint64_t plugin_id;
struct info {
    const char *target;
    struct {
        int least, current;
    } version;
    bool system;
    union {
        struct {
            int cpus, most_cpus;
        } machine;
    };
};
struct block;
struct instruction;
struct address;
enum { NO_REGISTERS = 0, READS_AND_WRITES = 3 };
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct block *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct block *, void (*)(unsigned cpu, void *), int flags, void *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct instruction *, void (*)(unsigned cpu, void *), int flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct instruction *, void (*)(unsigned cpu, uint32_t info, uint64_t at, void *), int flags,
                                      int which, void *);
size_t qemu_plugin_tb_n_insns(const struct block *);
struct instruction *qemu_plugin_tb_get_insn(const struct block *, size_t);
const void *qemu_plugin_insn_data(const struct instruction *);
size_t qemu_plugin_insn_size(const struct instruction *);
uint64_t qemu_plugin_insn_vaddr(const struct instruction *);
unsigned qemu_plugin_mem_size_shift(uint32_t info);
bool qemu_plugin_mem_is_store(uint32_t info);
struct address *qemu_plugin_get_hwaddr(uint32_t info, uint64_t at);
bool qemu_plugin_hwaddr_is_io(const struct address *);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct address *);
PUBLIC int qemu_plugin_version = 1;

// ---- what is counted ----
#define CPUS 64
#define NOBODY 0xff
#define SKIPS 4
enum { USER, KERNEL, MODES };

struct cpu {
    bool measured, skipping;
    uint64_t instructions[MODES];
    // From a CPU of the same node, and of another.
    uint64_t transfers[MODES][2], recalls[MODES][2];
};

struct line {
    uint64_t number; // 0: no line
    uint64_t holders, moves, writer_at, brought_at;
    uint8_t writer, moved_in; // moved_in: bit for each mode
};

// Which instruction had a line brought that which other had written.
struct pair {
    uint64_t at, writer_at, transfers, recalls;
    // The line that was moved last, and how often it was another one: 0 for a single line.
    uint64_t number, changes;
};

// A translated block; kept as long as QEMU runs, because it may execute as long.
struct code {
    struct code *next;
    uint64_t start, instructions, executed;
};

static struct cpu cpus[CPUS];
static struct code *codes;
static uint64_t code_count;
static struct line *lines;
static struct pair *pairs;
static uint64_t line_room, line_count, pair_room, pair_count;
static int cpus_a_node = CPUS;
static uint64_t skipped[SKIPS];
static int skips;
static FILE *out;

static uint64_t scramble(uint64_t key) { return (key ^ key >> 29) * 0x9e3779b97f4a7c15; }

static void *zeroed(uint64_t count, size_t size) {
    void *at = calloc(count, size);
    if (!at)
        abort();
    return at;
}

static struct line *line_place(uint64_t number) {
    uint64_t at = scramble(number) & (line_room - 1);
    while (lines[at].number && lines[at].number != number)
        at = (at + 1) & (line_room - 1);
    return &lines[at];
}

static struct line *line_of(uint64_t number) {
    struct line *line = line_place(number);
    if (line->number)
        return line;
    if (2 * ++line_count > line_room) {
        struct line *old = lines;
        uint64_t count = line_room;
        lines = zeroed(line_room *= 2, sizeof *lines);
        for (uint64_t at = 0; at < count; at++)
            if (old[at].number)
                *line_place(old[at].number) = old[at];
        free(old);
        line = line_place(number);
    }
    *line = (struct line){.number = number, .writer = NOBODY};
    return line;
}

static struct pair *pair_place(uint64_t at, uint64_t writer_at) {
    uint64_t place = scramble(at + 3 * writer_at) & (pair_room - 1);
    while (pairs[place].at && (pairs[place].at != at || pairs[place].writer_at != writer_at))
        place = (place + 1) & (pair_room - 1);
    return &pairs[place];
}

static struct pair *pair_of(uint64_t at, uint64_t writer_at) {
    struct pair *pair = pair_place(at, writer_at);
    if (pair->at)
        return pair;
    if (2 * ++pair_count > pair_room) {
        struct pair *old = pairs;
        uint64_t count = pair_room;
        pairs = zeroed(pair_room *= 2, sizeof *pairs);
        for (uint64_t place = 0; place < count; place++)
            if (old[place].at)
                *pair_place(old[place].at, old[place].writer_at) = old[place];
        free(old);
        pair = pair_place(at, writer_at);
    }
    pair->at = at, pair->writer_at = writer_at;
    return pair;
}

static bool other_node(unsigned a, unsigned b) { return a / cpus_a_node != b / cpus_a_node; }

static void moved(struct line *line, unsigned cpu, unsigned from, uint64_t at, bool transfer) {
    int mode = at >> 63 ? KERNEL : USER;
    (transfer ? cpus[cpu].transfers : cpus[cpu].recalls)[mode][other_node(cpu, from)]++;
    struct pair *pair = pair_of(at, line->writer == NOBODY ? 0 : line->writer_at);
    (*(transfer ? &pair->transfers : &pair->recalls))++;
    pair->changes += pair->number && pair->number != line->number;
    pair->number = line->number;
    line->moves++;
    if (transfer)
        line->moved_in |= 1 << mode;
}

// An instruction that reads and writes is seen twice here, but brings its line once, to write.
static void touch(unsigned cpu, uint64_t number, bool store, uint64_t at) {
    struct line *line = line_of(number);
    uint64_t self = 1ull << cpu, others = line->holders & ~self;
    if (!(line->holders & self) && line->writer != NOBODY && line->writer != cpu)
        moved(line, cpu, line->writer, at, true), line->brought_at = at;
    else if (store && others && line->brought_at != at) {
        // The farthest decides.
        unsigned from = __builtin_ctzll(others), last = 63 - __builtin_clzll(others);
        moved(line, cpu, other_node(cpu, last) ? last : from, at, false);
    }
    line->holders |= self;
    if (store) {
        line->holders = self;
        line->writer = cpu;
        line->writer_at = at;
        line->brought_at = 0;
    }
}

// ---- what QEMU calls ----
static void on_memory(unsigned cpu, uint32_t info, uint64_t where, void *at) {
    if (!cpus[cpu].measured || cpus[cpu].skipping)
        return;
    const struct address *address = qemu_plugin_get_hwaddr(info, where);
    if (!address || qemu_plugin_hwaddr_is_io(address))
        return;
    uint64_t physical = qemu_plugin_hwaddr_phys_addr(address);
    uint64_t last = physical + (1ull << qemu_plugin_mem_size_shift(info)) - 1;
    bool store = qemu_plugin_mem_is_store(info);
    // Line 0 is nobody's, so the numbers can begin with 1.
    touch(cpu, physical / 64 + 1, store, (uint64_t)at);
    if (last / 64 != physical / 64 && last % 4096 > physical % 4096)
        touch(cpu, last / 64 + 1, store, (uint64_t)at);
}

static void on_block(unsigned cpu, void *what) {
    struct code *code = what;
    if (!cpus[cpu].measured || cpus[cpu].skipping)
        return;
    cpus[cpu].instructions[code->start >> 63] += code->instructions;
    code->executed++;
}

static void on_timer(unsigned cpu, void *none) {
    (void)none;
    cpus[cpu].skipping = true;
}

static void on_return(unsigned cpu, void *none) {
    (void)none;
    cpus[cpu].skipping = false;
}

static void forget(void) {
    memset(lines, 0, line_room * sizeof *lines);
    memset(pairs, 0, pair_room * sizeof *pairs);
    line_count = pair_count = 0;
    memset(cpus, 0, sizeof cpus);
    for (struct code *code = codes; code; code = code->next)
        code->executed = 0;
}

static int by_count(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    uint64_t p = x->transfers + x->recalls, q = y->transfers + y->recalls;
    return p != q ? (p < q) - (p > q) : x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->writer_at > y->writer_at) - (x->writer_at < y->writer_at);
}

static int by_weight(const void *a, const void *b) {
    const struct code *x = *(struct code *const *)a, *y = *(struct code *const *)b;
    uint64_t p = x->executed * x->instructions, q = y->executed * y->instructions;
    return p != q ? (p < q) - (p > q) : (x->start > y->start) - (x->start < y->start);
}

// Where the kernels' instructions are.
static void write_codes(void) {
    struct code **sorted = zeroed(code_count, sizeof *sorted);
    uint64_t count = 0;
    for (struct code *code = codes; code; code = code->next)
        if (code->executed && code->start >> 63)
            sorted[count++] = code;
    qsort(sorted, count, sizeof *sorted, by_weight);
    for (uint64_t at = 0; at < count && at < 3000; at++)
        fprintf(out, "CODE %#" PRIx64 " %" PRIu64 " %" PRIu64 "\n", sorted[at]->start, sorted[at]->executed * sorted[at]->instructions,
                sorted[at]->executed);
    free(sorted);
}

static void write_down(void) {
    fprintf(out, "BEGIN\n");
    for (int at = 0; at < CPUS; at++) {
        const struct cpu *cpu = &cpus[at];
        if (!cpu->instructions[USER] && !cpu->instructions[KERNEL])
            continue;
        fprintf(out, "CPU %d", at);
        for (int mode = 0; mode < MODES; mode++)
            fprintf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, cpu->instructions[mode],
                    cpu->transfers[mode][0], cpu->transfers[mode][1], cpu->recalls[mode][0], cpu->recalls[mode][1]);
        fprintf(out, "\n");
    }
    uint64_t distinct[MODES] = {0}, hottest = 0;
    for (uint64_t at = 0; at < line_room; at++) {
        for (int mode = 0; mode < MODES; mode++)
            distinct[mode] += lines[at].moved_in >> mode & 1;
        hottest = lines[at].moves > hottest ? lines[at].moves : hottest;
    }
    fprintf(out, "LINES %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", distinct[USER], distinct[KERNEL], hottest);
    // The table is made anew by the next BEGIN.
    qsort(pairs, pair_room, sizeof *pairs, by_count);
    for (uint64_t at = 0; at < pair_count && at < 200; at++)
        fprintf(out, "PAIR %#" PRIx64 " %#" PRIx64 " %" PRIu64 " %" PRIu64 " %d\n", pairs[at].at, pairs[at].writer_at,
                pairs[at].transfers, pairs[at].recalls, pairs[at].changes == 0);
    write_codes();
    fprintf(out, "END\n");
    fflush(out);
    forget();
}

static void on_mark(unsigned cpu, void *mark) {
    switch ((uint64_t)mark) {
    case MARK_BEGIN: forget(); break;
    case MARK_START: cpus[cpu].measured = true; break;
    case MARK_STOP: cpus[cpu].measured = false; break;
    case MARK_START_ALL:
    case MARK_STOP_ALL:
        for (int at = 0; at < CPUS; at++)
            cpus[at].measured = (uint64_t)mark == MARK_START_ALL;
        break;
    case MARK_END: write_down(); break;
    }
}

static uint32_t mark_of(const struct instruction *instruction) {
    const uint8_t *bytes = qemu_plugin_insn_data(instruction);
    uint32_t mark = 0;
    if (qemu_plugin_insn_size(instruction) == 7 && bytes[0] == 0x0f && bytes[1] == 0x1f && bytes[2] == 0x80)
        memcpy(&mark, bytes + 3, sizeof mark);
    return mark >= MARK_BEGIN && mark <= MARK_STOP_ALL ? mark : 0;
}

// iretq, or sysretq: a kernel may go on with a thread that was in a system call, and Cob takes sysretq wherever it may.
static bool returns(const struct instruction *instruction) {
    const uint8_t *bytes = qemu_plugin_insn_data(instruction);
    size_t size = qemu_plugin_insn_size(instruction);
    return (size == 2 && !memcmp(bytes, "\x48\xcf", 2)) || (size == 3 && !memcmp(bytes, "\x48\x0f\x07", 3));
}

static void on_translation(plugin_id id, struct block *block) {
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(block);
    struct code *code = zeroed(1, sizeof *code);
    *code = (struct code){codes, qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(block, 0)), count, 0};
    codes = code, code_count++;
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, NO_REGISTERS, code);
    for (size_t at = 0; at < count; at++) {
        struct instruction *instruction = qemu_plugin_tb_get_insn(block, at);
        uint64_t at_address = qemu_plugin_insn_vaddr(instruction);
        for (int skip = 0; skip < skips; skip++)
            if (at_address == skipped[skip])
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_timer, NO_REGISTERS, NULL);
        if (returns(instruction))
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_return, NO_REGISTERS, NULL);
        uint32_t mark = mark_of(instruction);
        if (mark)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark, NO_REGISTERS, (void *)(uint64_t)mark);
        qemu_plugin_register_vcpu_mem_cb(instruction, on_memory, NO_REGISTERS, READS_AND_WRITES,
                                         (void *)at_address);
    }
}

// Arguments: out=FILE, node=CPUS OF A NODE, skip=ENTRY OF THE TIMER INTERRUPT.
PUBLIC int qemu_plugin_install(plugin_id id, const struct info *info, int argc, char **argv) {
    for (int at = 0; at < argc; at++) {
        if (!strncmp(argv[at], "out=", 4))
            out = fopen(argv[at] + 4, "w");
        else if (!strncmp(argv[at], "node=", 5))
            cpus_a_node = atoi(argv[at] + 5);
        else if (!strncmp(argv[at], "skip=", 5) && skips < SKIPS)
            skipped[skips++] = strtoull(argv[at] + 5, NULL, 16);
    }
    if (!out || cpus_a_node < 1 || !info->system || info->machine.cpus > CPUS) {
        fprintf(stderr, "plugin: out=FILE node=CPUS, at most %d CPUs\n", CPUS);
        return 1;
    }
    lines = zeroed(line_room = 1 << 16, sizeof *lines);
    pairs = zeroed(pair_room = 1 << 10, sizeof *pairs);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
