// The same is asked of many things, in a child, and a second time in a child that has moved to the last CPU, and with it to
// another kernel than its home. Things that answer alike share a line; what answers otherwise from elsewhere has a line of
// its own. The host's answers are the expected ones.
#pragma once
#include "errnos.h"

#define MOST_THINGS 128
#define MOST_WORDS 48

static const char *things[MOST_THINGS];
static int thing_count;

// Shared with the children: the answers, and which thing is being asked.
static struct {
    int at;
    char words[2][MOST_THINGS][MOST_WORDS];
} *said;

// What is not asked, because the answers are the host's own affair, or because docs/limits.md says that Cob differs: a question
// that contains these words, of these things, " one two ". Ends with NULLs.
struct exception {
    const char *question, *things;
};

static const struct exception *exceptions;

static int is_excepted(const char *question, const char *thing) {
    char word[100];
    snprintf(word, sizeof word, " %s ", thing);
    for (const struct exception *entry = exceptions; entry && entry->question; entry++)
        if (strstr(question, entry->question) && strstr(entry->things, word))
            return 1;
    return 0;
}

static void prepare_each(void) {
    prepare();
    said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(said != MAP_FAILED);
}

// What the children share is made anew.
static void before_each(void);

// 1 in the child, which asks the rest of the things, from said->at on. One that it does not survive answers with a signal.
static int begins(int away) {
    if (said->at >= thing_count)
        return 0;
    before_each();
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        alarm(8);
        if (away)
            move_to(cpu_count() - 1);
        return 1;
    }
    int status;
    MUST(waitpid(child, &status, __WALL) == child);
    if (said->at < thing_count) {
        const char *how = WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "no answer";
        memset(said->words[away][said->at], 0, MOST_WORDS);
        snprintf(said->words[away][said->at++], MOST_WORDS, "%s", how);
        return begins(away);
    }
    return 0;
}

// The result, or what is wrong; more about it (a value that was read) if there is more. NULL: it was not asked.
static void answers(int away, int thing, long result, const char *more) {
    char *words = said->words[away][thing];
    memset(words, 0, MOST_WORDS);
    if (more && result == -1 && errno)
        snprintf(words, MOST_WORDS, "%s", error_name(errno));
    else if (more)
        snprintf(words, MOST_WORDS, "%ld%s%s", result, *more ? " " : "", more);
    said->at = thing + 1;
}

static void show_group(const char *place, char (*words)[MOST_WORDS], const char *left_out) {
    char done[MOST_THINGS];
    memcpy(done, left_out, sizeof done);
    for (int first = 0; first < thing_count; first++) {
        if (done[first])
            continue;
        printf("  %s%s:", place, words[first]);
        for (int thing = first; thing < thing_count; thing++)
            if (!done[thing] && strcmp(words[thing], words[first]) == 0) {
                printf(" %s", things[thing]);
                done[thing] = 1;
            }
        printf("\n");
    }
}

// The answers to the questions that were shown last; they come once, after all questions that they answer.
static char due[2][MOST_THINGS][MOST_WORDS];

static void show_due(void) {
    char left_out[MOST_THINGS], same[MOST_THINGS];
    for (int thing = 0; thing < thing_count; thing++) {
        left_out[thing] = due[0][thing][0] == 0;
        same[thing] = strcmp(due[0][thing], due[1][thing]) == 0;
    }
    show_group("", due[0], left_out);
    show_group("elsewhere ", due[1], same);
    memset(due, 0, sizeof due);
}

static void show_answers(const char *question) {
    if (memcmp(due, said->words, sizeof due) != 0)
        show_due();
    memcpy(due, said->words, sizeof due);
    printf("%s\n", question);
}

// What is asked from now on.
static void ask_about(const char *const *names, int count) {
    MUST(count <= MOST_THINGS);
    show_due();
    memset(said, 0, sizeof *said);
    memcpy(things, names, count * sizeof *names);
    thing_count = count;
}

// Asks all things: `expression` is the attempt, about thing number `thing`, and `more` what is told beside its result.
#define EACH_TELLS(question, more, expression)                                                                       \
    do {                                                                                                             \
        for (int away = 0; away < 2; away++) {                                                                       \
            said->at = 0;                                                                                            \
            if (!begins(away))                                                                                       \
                continue;                                                                                            \
            for (int thing = said->at; thing < thing_count; thing++) {                                               \
                if (is_excepted(question, things[thing])) {                                                          \
                    answers(away, thing, 0, NULL);                                                                   \
                    continue;                                                                                        \
                }                                                                                                    \
                errno = 0;                                                                                           \
                long result_ = (long)(expression);                                                                   \
                answers(away, thing, result_, more);                                                                 \
            }                                                                                                        \
            _exit(0);                                                                                                \
        }                                                                                                            \
        show_answers(question);                                                                                      \
    } while (0)
#define EACH(expression) EACH_TELLS(#expression, "", expression)
// Only whether it worked: the result differs from run to run.
#define EACH_DONE(expression) EACH_TELLS(#expression, "", (expression) == -1 ? -1 : 0)
