/* Fuzz the native code: `make fuzz`.
 *
 * Usage: fuzz [-n EXECUTIONS] [-t SECONDS] [-s SEED] [-f FAILURES] [-k KEPT] INPUT...
 *
 * The fuzzer executes the inputs, mutates them, and continues with the mutants that reach more of the code. The first
 * byte of an input selects the target (see `targets`). The rest of the input is the text. A child process executes the
 * inputs. If the child fails or hangs, its parent writes the current input to the folder FAILURES. At the end, the
 * child writes to the folder KEPT inputs that together reach all edges that any input has reached.
 *
 * libFuzzer would require clang. This driver works with gcc, clang, or zig, which has no AddressSanitizer. Its
 * mutations use the grammar of RECORD lines. It also finds uses of uninitialised memory, and mistakes after failed
 * allocations.
 */
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size)
#define ASAN_UNPOISON_MEMORY_REGION(start, size)
#endif

#include "arrow.h"

/* ---- The interfaces of decoder.c and messages.c, as the Python modules declare them ------------------------------ */

enum { BOOLEAN, INTEGER, FLOAT, EXACT_FLOAT, DECIMAL, STRING, JSON, DATE, TIMESTAMP, LOCAL_TIMESTAMP, STRUCT, LIST,
       CAREFUL };

/* The arrays of integers, which precede the arrays of the columns. */
enum { ROW_TIMES, ROW_STARTS, ROW_ENDS, ROW_NUMBERS, CELL_ROWS, CELL_COLUMNS, CELL_STARTS, CELL_ENDS,
       REFUSED_STARTS, REFUSED_ENDS, REFUSED_NUMBERS, INTEGER_COLUMNS };

struct Node {
    int32_t kind, children, precision, scale;
    int64_t key, key_length;
};

int64_t decode_records(
    const struct Node *nodes, int64_t total, int64_t count, const uint8_t *keys, bool is_whole, const uint64_t *powers,
    const uint8_t *lines, int64_t length, struct ArrowArray *arrays
);

struct Run {
    int64_t start, end, lines, stream, stream_length, namespace, namespace_length;
};

int64_t split_messages(const uint8_t *lines, int64_t length, struct Run *runs, int64_t capacity);

/* ---- Inputs ----------------------------------------------------------------------------------------------------- */

enum { INPUT_SIZE = 4096, KEPT_COUNT = 300 };

struct Input {
    int length;
    uint8_t bytes[INPUT_SIZE];
};

static struct Input *input;  /* the current input, in memory that the parent process shares */
static struct Input **corpus;
static int corpus_length;

#define REQUIRE(condition)                                                             \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: It is not true that %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                   \
        }                                                                              \
    } while (0)

static uint64_t randomness;

static uint64_t draw(uint64_t below) {
    randomness ^= randomness << 13;
    randomness ^= randomness >> 7;
    randomness ^= randomness << 17;
    return (randomness >> 11) % below;
}

/* ---- Memory: the code is compiled with these functions in place of those of the C library. ----------------------- */

/* Blocks of memory follow one another in an arena. Each run starts with an empty arena. AddressSanitizer's own
 * allocator would take longer than the rest of a run. The tested code may access no byte of the arena outside the
 * blocks. The size of a block is stored in front of the block. */
enum { ARENA_SIZE = 1 << 25, GAP = 16 };

static uint8_t arena[ARENA_SIZE] __attribute__((aligned(GAP)));

static struct {
    size_t used;
    int64_t calls, blocks;
    int64_t first_failure, last_failure;  /* the numbers of the first and last call that fail; 0 if none fails */
    bool has_failed;
    uint8_t filling;                      /* the value of all bytes in a new block */
} memory;

/* Start a new run: make all blocks inaccessible, and reset the counts. */
static void begin_memory(uint8_t filling) {
    ASAN_POISON_MEMORY_REGION(arena, memory.used + GAP);
    memory.used = GAP;
    memory.calls = memory.blocks = 0;
    memory.has_failed = false;
    memory.filling = filling;
}

void *fuzz_malloc(size_t size) {
    memory.calls++;
    bool is_failure = memory.calls >= memory.first_failure && memory.calls <= memory.last_failure;
    memory.has_failed |= is_failure;
    if (is_failure) return NULL;
    uint8_t *block = arena + memory.used;
    memory.used += (size + GAP - 1) / GAP * GAP + GAP;
    memory.blocks++;
    REQUIRE(size < ARENA_SIZE && memory.used < ARENA_SIZE);
    ASAN_UNPOISON_MEMORY_REGION(block - sizeof size, sizeof size);
    memcpy(block - sizeof size, &size, sizeof size);
    ASAN_POISON_MEMORY_REGION(block - sizeof size, sizeof size);
    ASAN_UNPOISON_MEMORY_REGION(block, size);
    return memset(block, memory.filling, size);
}

void *fuzz_calloc(size_t count, size_t size) {
    void *block = fuzz_malloc(count * size);
    return block == NULL ? NULL : memset(block, 0, count * size);
}

static size_t size_of(const void *block) {
    size_t size;
    const uint8_t *place = (const uint8_t *)block - sizeof size;
    ASAN_UNPOISON_MEMORY_REGION(place, sizeof size);
    memcpy(&size, place, sizeof size);
    ASAN_POISON_MEMORY_REGION(place, sizeof size);
    return size;
}

void fuzz_free(void *block) {
    if (block == NULL) return;
    *(volatile uint8_t *)block;  /* If the block is already free, AddressSanitizer reports this access. */
    ASAN_POISON_MEMORY_REGION(block, size_of(block));
    memory.blocks--;
}

void *fuzz_realloc(void *block, size_t size) {
    void *larger = fuzz_malloc(size);
    if (larger == NULL || block == NULL) return larger;
    size_t before = size_of(block);
    memcpy(larger, block, before < size ? before : size);
    fuzz_free(block);
    return larger;
}

/* Disable LeakSanitizer, which may lack the permission to trace the process. `run` finds leaks by counting blocks. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

/* ---- Coverage --------------------------------------------------------------------------------------------------- */

/* An edge is a pair of basic blocks that the code executes one after the other. The coverage of an edge increases with
 * 1, 2, 4 and 16 hits. */
enum { EDGES = 1 << 16 };

static uint8_t hits[EDGES], reached[EDGES];
static uint32_t touched[EDGES];
static int touched_count, edge_count;
static uint32_t last_block;
static bool is_traced;  /* whether to trace the next run; tracing doubles the time, so most runs are not traced */

__attribute__((no_sanitize("address"), no_sanitize("undefined"))) void __sanitizer_cov_trace_pc(void) {
    if (!is_traced) return;
    /* Use addresses relative to a function, so that the number of an edge does not depend on where the code is
     * loaded. */
    uint64_t place = (uintptr_t)__builtin_return_address(0) - (uintptr_t)decode_records;
    uint32_t block = (uint32_t)(place * UINT64_C(0x9e3779b97f4a7c15) >> 48);
    uint32_t edge = block ^ last_block;
    last_block = block >> 1;
    if (hits[edge] == 0) touched[touched_count++] = edge;
    if (hits[edge] < 255) hits[edge]++;
}

static void forget_hits(void) {
    for (int i = 0; i < touched_count; i++) hits[touched[i]] = 0;
    touched_count = 0;
    last_block = 0;
}

/* Return whether the last run has increased the coverage of an edge. */
static bool reaches_more(void) {
    bool is_more = false;
    for (int i = 0; i < touched_count; i++) {
        uint8_t count = hits[touched[i]], *before = &reached[touched[i]];
        uint8_t bit = count >= 16 ? 8 : count >= 4 ? 4 : count >= 2 ? 2 : 1;
        is_more |= (*before & bit) == 0;
        edge_count += *before == 0;
        *before |= bit;
    }
    return is_more;
}

/* ---- Schemas ---------------------------------------------------------------------------------------------------- */

static const char KINDS[] = "bifxdsjDtl{[?";  /* in the order of their numbers */

/* For each column: its kind, the precision and scale of a decimal, its key in quotes, and its children. `*` means that
 * each column contains the text of the whole data. */
static const char *const SCHEMAS[] = {
    "b'b'i'i'f'f'x'x'd38,9'd's's'j'j'D'D't't'l'l'",
    "d1,0'a'd2,2'b'd9,0'c'd18,6'd'd38,0'e'd38,38'f'd38,9'g'",
    "{'a'i'i's's'{'n'['l'{i'i'['t's]}]}}s'z'",
    "['i'[i]]['b'b]['d'd9,2]['D'D]['j'j]['f'f]['t't]['s's]",
    "i'a\"b'i'\\'i'\n'i'\xc3\xa9's''i'a'i'ab'i'abc'{'n'i'\\u0061'i''}",
    "*s'data'j'_airbyte_data'?'c'i'i'",
    "",
    "?'?'{'e'}['e'{}]['a'{b'b'i'i'f'f'x'x'd9,2'd's's'j'j'D'D't't'l'l'{'n'i'a'}['m'[b]]}]",
    "s'c0's'c1's'c2's'c3's'c4'i'c5'i'c6'i'c7'i'c8'i'c9'f'c10'f'c11'b'c12'j'c13't'c14's'c15's'c16's'c17's'c18's'c19'",
    "['a'{'b'['c'{'d'[[{'e'[{'f'['g'i]s'h'}]}]]}]}]",
};
enum { SCHEMA_COUNT = sizeof SCHEMAS / sizeof *SCHEMAS };

struct Schema {
    bool is_whole;
    int64_t total, count, keys_length;
    struct Node *nodes;
    uint8_t *keys;
    struct ArrowArray *arrays;
};

static struct Schema schemas[SCHEMA_COUNT];

/* Add the nodes of the column at `*at` to a schema, and move `*at` to the position after the column. */
static void add_nodes(struct Schema *schema, const char **at) {
    int64_t index = schema->total++;
    schema->nodes = realloc(schema->nodes, (size_t)schema->total * sizeof *schema->nodes);
    struct Node node = {.kind = (int32_t)(strchr(KINDS, *(*at)++) - KINDS), .key = schema->keys_length};
    if (node.kind == DECIMAL) {
        char *end;
        node.precision = (int32_t)strtol(*at, &end, 10);
        node.scale = (int32_t)strtol(end + 1, &end, 10);
        *at = end;
    }
    if (**at == '\'') {
        const char *key = *at + 1, *end = strchr(key, '\'');
        node.key_length = end - key;
        schema->keys_length += node.key_length;
        schema->keys = realloc(schema->keys, (size_t)schema->keys_length);
        memcpy(schema->keys + node.key, key, (size_t)node.key_length);
        *at = end + 1;
    }
    if (node.kind == STRUCT || node.kind == LIST) {
        for (; **at != '}' && **at != ']'; node.children++) add_nodes(schema, at);
        (*at)++;
    }
    schema->nodes[index] = node;
}

static void make_schema(struct Schema *schema, const char *columns) {
    const char *meta = "{'meta'['changes'{s'field's'change's'reason'}]}";
    add_nodes(schema, &meta);
    schema->is_whole = *columns == '*';
    columns += schema->is_whole;
    for (schema->count = 1; *columns != '\0'; schema->count++) add_nodes(schema, &columns);
    schema->arrays = malloc((size_t)(INTEGER_COLUMNS + schema->count) * sizeof *schema->arrays);
}

/* ---- The target of RECORD lines --------------------------------------------------------------------------------- */

static void mix(uint64_t *digest, const void *bytes, int64_t length) {
    for (int64_t i = 0; i < length; i++)
        *digest = (*digest ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
}

static bool is_set(const uint8_t *bitmap, int64_t at) { return bitmap[at >> 3] >> (at & 7) & 1; }

/* Return whether bytes are UTF-8. Unlike `is_utf8`, compares the code points with the ranges for their lengths. */
static bool is_unicode(const uint8_t *at, int64_t length) {
    static const uint32_t lowest[] = {0, 0x80, 0x800, 0x10000};
    for (const uint8_t *end = at + length; at < end;) {
        int more = *at < 0x80 ? 0 : *at >> 5 == 6 ? 1 : *at >> 4 == 14 ? 2 : *at >> 3 == 30 ? 3 : -1;
        if (more < 0 || end - at <= more) return false;
        uint32_t point = more == 0 ? *at : *at & (0x3fu >> more);
        at++;
        for (int i = 0; i < more; i++, at++) {
            if (*at >> 6 != 2) return false;
            point = point << 6 | (*at & 0x3f);
        }
        if (point < lowest[more] || point > 0x10ffff || point >> 11 == 0x1b) return false;
    }
    return true;
}

static bool is_in_range(const struct Node *node, const uint8_t *value) {
    int64_t integer;
    int32_t day;
    double number;
    __int128 decimal, limit = 1;
    switch (node->kind) {
        case INTEGER: memcpy(&integer, value, sizeof integer); return llabs(integer) < INT64_C(1000000000000000000);
        case FLOAT: case EXACT_FLOAT: memcpy(&number, value, sizeof number); return number - number == 0;
        case DATE: memcpy(&day, value, sizeof day); return day >= -719162 && day <= 2932896;
        case DECIMAL:
            memcpy(&decimal, value, sizeof decimal);
            for (int32_t i = 0; i < node->precision; i++) limit *= 10;
            return decimal > -limit && decimal < limit;
        default:
            memcpy(&integer, value, sizeof integer);
            return integer >= INT64_C(-62135596800000000) && integer <= INT64_C(253402300799999999);
    }
}

/* Check an array and its children. Mix all bytes that a consumer may read into the digest. Return the next node. */
static const struct Node *check_array(
    const struct Node *node, const struct ArrowArray *array, int64_t length, uint64_t *digest
) {
    static const uint8_t zeros[16];
    static const int8_t sizes[] = {0, 8, 8, 8, 16, 4, 4, 4, 8, 8, 0, 4, 8};
    bool is_text = node->kind == STRING || node->kind == JSON;
    REQUIRE(array->length == length && array->offset == 0 && array->dictionary == NULL);
    REQUIRE(array->n_children == node->children && array->release != NULL);
    REQUIRE(array->n_buffers == (node->kind == STRUCT ? 1 : is_text ? 3 : 2));
    const uint8_t *valid = array->buffers[0], *values = node->kind == STRUCT ? NULL : array->buffers[1];
    int64_t nulls = 0, size = sizes[node->kind], bitmap = (length + 7) / 8, inside = length;
    for (int64_t i = 0; valid != NULL && i < length; i++) nulls += !is_set(valid, i);
    REQUIRE(nulls == array->null_count);
    mix(digest, &nulls, sizeof nulls);
    if (valid != NULL) mix(digest, valid, bitmap);
    if (is_text || node->kind == LIST) {
        const int32_t *offsets = (const int32_t *)(const void *)values;
        const uint8_t *data = is_text ? array->buffers[2] : NULL;
        REQUIRE(offsets[0] == 0);
        for (int64_t i = 0; i < length; i++) {
            REQUIRE(offsets[i] <= offsets[i + 1]);
            REQUIRE(valid == NULL || is_set(valid, i) || offsets[i] == offsets[i + 1]);
            if (is_text) REQUIRE(is_unicode(data + offsets[i], offsets[i + 1] - offsets[i]));
        }
        inside = offsets[length];
        mix(digest, offsets, (length + 1) * size);
        if (is_text) mix(digest, data, inside);
    } else if (node->kind == BOOLEAN) mix(digest, values, bitmap);
    else if (node->kind != STRUCT) {
        for (int64_t i = 0; i < length; i++)
            REQUIRE(valid == NULL || is_set(valid, i) ? is_in_range(node, values + i * size)
                : memcmp(values + i * size, zeros, (size_t)size) == 0);
        mix(digest, values, length * size);
    }
    const struct Node *child = node + 1;
    for (int64_t i = 0; i < array->n_children; i++) child = check_array(child, array->children[i], inside, digest);
    return child;
}

static int64_t integer_at(const struct ArrowArray *array, int64_t row) {
    return ((const int64_t *)array->buffers[1])[row];
}

/* Check that every line that is not empty is either the next row or the next refused line. Return the number of
 * lines. */
static int64_t check_lines(const struct ArrowArray *arrays, const uint8_t *text, int64_t length) {
    int64_t row = 0, refused = 0, number = 0;
    for (int64_t start = 0, end; start < length; start = end + 1, number++) {
        end = (const uint8_t *)memchr(text + start, '\n', (size_t)(length - start)) - text;
        if (end == start) continue;
        bool is_row = row < arrays[ROW_NUMBERS].length && integer_at(&arrays[ROW_NUMBERS], row) == number;
        const struct ArrowArray *lines = &arrays[is_row ? ROW_STARTS : REFUSED_STARTS];
        int64_t at = is_row ? row++ : refused++;
        REQUIRE(at < lines->length && integer_at(lines + 2, at) == number);
        REQUIRE(integer_at(lines, at) == start && integer_at(lines + 1, at) == end);
    }
    REQUIRE(row == arrays[ROW_NUMBERS].length && refused == arrays[REFUSED_NUMBERS].length);
    return number;
}

/* Check that cells are within the lines of their rows, that their columns are null, and that cells do not overlap
 * unless they contain the whole data. */
static void check_cells(const struct ArrowArray *arrays, int64_t count, bool is_whole) {
    int64_t behind = 0;
    for (int64_t i = 0; i < arrays[CELL_ROWS].length; i++) {
        int64_t row = integer_at(&arrays[CELL_ROWS], i), column = integer_at(&arrays[CELL_COLUMNS], i);
        int64_t start = integer_at(&arrays[CELL_STARTS], i), end = integer_at(&arrays[CELL_ENDS], i);
        REQUIRE(row >= 0 && row < arrays[ROW_TIMES].length && column >= 0 && column < count);
        REQUIRE(start < end && (behind <= start || is_whole));
        REQUIRE(integer_at(&arrays[ROW_STARTS], row) < start && end < integer_at(&arrays[ROW_ENDS], row));
        const uint8_t *valid = arrays[INTEGER_COLUMNS + column].buffers[0];
        REQUIRE(valid != NULL && !is_set(valid, row));
        behind = end;
    }
}

static uint64_t decode(const struct Schema *schema, const uint8_t *text, int64_t length) {
    /* The fuzzer does not compare doubles with a reference, so all powers can have the same value. */
    static uint64_t powers[2 * 651];
    for (int i = 0; i < 2 * 651; i += 2) powers[i] = UINT64_C(1) << 63;
    uint64_t digest = 0;
    int64_t array_count = INTEGER_COLUMNS + schema->count;
    struct ArrowArray *arrays = schema->arrays;
    memset(arrays, memory.filling, (size_t)array_count * sizeof *arrays);
    int64_t lines = decode_records(
        schema->nodes, schema->total, schema->count, schema->keys, schema->is_whole, powers, text, length, arrays
    );
    REQUIRE((lines < 0) == memory.has_failed);
    if (lines >= 0) {
        static const struct Node time = {.kind = TIMESTAMP}, integer = {.kind = INTEGER};
        const struct Node *node = schema->nodes;
        for (int64_t i = 0; i < array_count; i++) {
            bool is_column = i >= INTEGER_COLUMNS;
            int64_t rows = arrays[i >= REFUSED_STARTS && !is_column ? REFUSED_STARTS
                : i >= CELL_ROWS && !is_column ? CELL_ROWS : ROW_TIMES].length;
            REQUIRE(is_column || arrays[i].null_count == 0);
            const struct Node *next = check_array(
                is_column ? node : i == ROW_TIMES ? &time : &integer, &arrays[i], rows, &digest
            );
            if (is_column) node = next;
        }
        REQUIRE(lines == check_lines(arrays, text, length));
        check_cells(arrays, schema->count, schema->is_whole);
        for (int64_t i = 0; i < array_count; i++) arrays[i].release(&arrays[i]);
    }
    return digest;
}

/* ---- The target of messages ------------------------------------------------------------------------------------- */

/* Return whether a name is the content of a JSON string in the text. A missing name has the length -1. */
static bool is_name_in(const uint8_t *text, int64_t end, int64_t name, int64_t length) {
    if (length < 0) return length == -1 && name == 0;
    return name > 0 && name + length < end && text[name - 1] == '"' && text[name + length] == '"'
        && is_unicode(text + name, length);
}

static bool is_same_name(const uint8_t *one, int64_t length, const uint8_t *two, int64_t other_length) {
    return length == other_length && (length < 0 || memcmp(one, two, (size_t)length) == 0);
}

static bool is_same_stream(const uint8_t *one, const struct Run *run, const uint8_t *two, const struct Run *other) {
    return is_same_name(one + run->stream, run->stream_length, two + other->stream, other->stream_length)
        && is_same_name(one + run->namespace, run->namespace_length, two + other->namespace, other->namespace_length);
}

/* Split messages, and check the runs. Each line must have the stream of its run if it is split alone. If there is room
 * for only half of the runs, the result must be the first half. */
static uint64_t split(const struct Schema *schema, const uint8_t *text, int64_t length) {
    (void)schema;
    int64_t line_count = 0, at = 0;
    for (int64_t i = 0; i < length; i++) line_count += text[i] == '\n';
    size_t size = (size_t)line_count * sizeof(struct Run);
    struct Run *runs = malloc(size), *fewer = malloc(size), single;
    int64_t count = split_messages(text, length, runs, line_count), half = (count + 1) / 2;
    REQUIRE(count > 0 && count <= line_count);
    for (int64_t i = 0; i < count; i++) {
        const struct Run *run = &runs[i];
        int64_t lines = 0;
        REQUIRE(run->start == at && (i == 0 || !is_same_stream(text, run, text, run - 1)));
        for (; at < run->end; lines++) {
            int64_t end = (const uint8_t *)memchr(text + at, '\n', (size_t)(length - at)) - text + 1;
            REQUIRE(split_messages(text + at, end - at, &single, 1) == 1 && single.lines == 1);
            REQUIRE(single.start == 0 && single.end == end - at && is_same_stream(text, run, text + at, &single));
            REQUIRE(lines > 0 || is_name_in(text, end, run->stream, run->stream_length));
            REQUIRE(lines > 0 || is_name_in(text, end, run->namespace, run->namespace_length));
            at = end;
        }
        REQUIRE(run->end == at && run->lines == lines);
    }
    REQUIRE(at == length);
    REQUIRE(split_messages(text, length, fewer, half) == half);
    REQUIRE(memcmp(runs, fewer, (size_t)half * sizeof *runs) == 0);
    free(runs);
    free(fewer);
    return 0;
}

/* ---- Execution -------------------------------------------------------------------------------------------------- */

/* The targets, which the lower four bits of an input's first byte select. A target runs the code on the text, checks
 * the results, and returns a digest of them. */
static struct Target {
    uint64_t (*run)(const struct Schema *schema, const uint8_t *text, int64_t length);
    const struct Schema *schema;
} targets[16];

static const struct Target *target_of_input(void) { return &targets[input->length ? input->bytes[0] & 15 : 0]; }

static uint8_t *texts, *texts_end;  /* memory for texts, each of which ends in front of an unreadable page */

static void make_targets(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (INPUT_SIZE + page - 1) / page * page;
    texts = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    texts_end = texts + size;
    REQUIRE(texts != MAP_FAILED && mprotect(texts_end, page, PROT_NONE) == 0);
    for (int i = 0; i < SCHEMA_COUNT; i++) make_schema(&schemas[i], SCHEMAS[i]);
    for (int i = 0; i < 16; i++)
        targets[i] = i < SCHEMA_COUNT ? (struct Target){decode, &schemas[i]} : (struct Target){split, &schemas[0]};
}

static uint64_t executions;

static uint64_t run(const uint8_t *text, uint8_t filling) {
    const struct Target *target = target_of_input();
    begin_memory(filling);
    executions++;
    uint64_t digest = target->run(target->schema, text, texts_end - text);
    REQUIRE(memory.blocks == 0);
    return digest;
}

/* Run the input. Return whether the first run is traced and increases the coverage.
 *
 * Sometimes, or always if `is_thorough` is set, run the input again with other bytes in uninitialised memory, and again
 * with an allocation that fails, either alone or together with all later allocations. */
static bool execute(bool is_thorough) {
    int length = input->length ? input->length : 1;
    uint8_t *text = texts_end - length;
    ASAN_UNPOISON_MEMORY_REGION(text, (size_t)length);
    memcpy(text, input->bytes + 1, (size_t)length - 1);
    text[length - 1] = '\n';
    ASAN_POISON_MEMORY_REGION(texts, (size_t)(text - texts));
    forget_hits();
    uint64_t digest = run(text, 0xa5);
    is_traced = false;
    int64_t calls = memory.calls;
    bool is_more = reaches_more();
    if (is_thorough || is_more || draw(16) == 0) REQUIRE(run(text, 0x5a) == digest);
    int64_t call = is_thorough ? 1 : 1 + (int64_t)draw((uint64_t)calls + 1);
    for (int64_t last = is_thorough ? calls : draw(8) == 0 ? call : 0; call <= last; call++) {
        memory.first_failure = call;
        memory.last_failure = draw(2) ? call : INT64_MAX;
        run(text, 0xa5);
        memory.first_failure = memory.last_failure = 0;
    }
    return is_more;
}

/* ---- Mutations: each replaces a part of the input ---------------------------------------------------------------- */

/* Tokens to insert. For legibility, ' stands for ". */
static const char *const TOKENS[] = {
    "{'type':'RECORD','record':{'stream':'s','data':{", "},'emitted_at':1700000000000}}\n", "'type':", "'RECORD'",
    "'STATE'", "'record':", "'stream':'s'", "'namespace':", "'data':", "'emitted_at':", "'meta':", "'x':0,",
    "{'changes':[{'field':'a','change':'NULLED','reason':'SOURCE_RETRIEVAL_ERROR'}]}", "{", "}", "[", "]", ",", ":",
    "'", "\\", " ", "\t", "\r", "\n", "null", "true", "false", "{}", "[]", "[[]]", "[[[[", "]]]]", "{'a':", "0", "-0",
    "0.1", "-1.5", "1.25e2", "1E+05", "1e22", "1e400", "5e-324", "2.2250738585072014e-308", "0.30000000000000004",
    "9007199254740993", "18014398509481983", "123456789.123456789", "123456789012345", "999999999999999999",
    "9223372036854775807", "99999999999999999999999999999999999999", "1700000000", "1700000000000", "253402300799999",
    "99999999999", "-62135596800000", "'12'", "'007'", "'-0.5'", "'2024-02-29'", "'2024-02-29 12:00'", "'0001-01-01'",
    "'9999-12-31T23:59:59.999999Z'", "'2024-02-29T12:00:00.123+05:30'", "'0001-01-01T00:00:00+23:59'", "T00:00:00",
    "-00:01", ".1234567", "''", "'a'", "'a quite long string of text'", "\\u0000", "\\u0041", "\\u00e9", "\\u20ac",
    "\\ud83d\\ude00", "\\ud800", "\\udc00", "\\u00", "\\n", "\\'", "\\\\", "\\/", "\\x", "\x01", "\x1f", "\x7f",
    "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xff", "\xc0\x80", "\xc3", "\xed\xa0\x80", "\xe0\x80\x80",
    "\xf4\x90\x80\x80", "\xf0\x9f\x98",
};

/* Replace the bytes between two positions. Cut off bytes beyond the maximum size of an input. */
static void replace(int from, int to, const void *bytes, int count) {
    uint8_t piece[INPUT_SIZE];
    if (count > INPUT_SIZE - from) count = INPUT_SIZE - from;
    memcpy(piece, bytes, (size_t)count);
    int rest = input->length - to;
    if (rest > INPUT_SIZE - from - count) rest = INPUT_SIZE - from - count;
    memmove(input->bytes + from + count, input->bytes + to, (size_t)rest);
    memcpy(input->bytes + from, piece, (size_t)count);
    input->length = from + count + rest;
}

static int any_position(const struct Input *from) { return (int)draw((uint64_t)from->length + 1); }

static const struct Input *any_input(void) { return corpus[draw((uint64_t)corpus_length)]; }

static bool is_one_of(uint8_t byte, const char *bytes) { return byte != '\0' && strchr(bytes, byte) != NULL; }

/* Find a key, or a value with everything inside it, at or after a random position. Return the end of the key or
 * value. */
static int any_value(const struct Input *from, int *start) {
    int at = any_position(from), depth = 0;
    while (at > 1 && !is_one_of(from->bytes[at - 1], ",:{}[]\n")) at--;
    *start = at;
    for (; at < from->length; at++) {
        uint8_t byte = from->bytes[at];
        if (is_one_of(byte, "{[")) depth++;
        else if (is_one_of(byte, "}]") && depth-- <= 1) return depth < 0 ? at : at + 1;
        else if (is_one_of(byte, ",:\n") && depth == 0) break;
    }
    return at;
}

static void mutate(void) {
    const struct Input *donor = any_input();
    const struct Schema *schema = target_of_input()->schema;
    const struct Node *node = &schema->nodes[draw((uint64_t)schema->total)];
    char made[128];
    int at = any_position(input), end = at, start, count;
    count = snprintf(made, sizeof made, "%s", TOKENS[draw(sizeof TOKENS / sizeof *TOKENS)]);
    for (char *quote; (quote = strchr(made, '\'')) != NULL;) *quote = '"';
    switch (draw(16)) {
        case 0: case 1: replace(at, at, made, count); break;
        case 2: case 3:
            end = any_value(input, &at);
            replace(at, end, made, count);
            break;
        case 4: case 5:
            end = any_value(input, &at);
            count = any_value(donor, &start) - start;
            replace(at, end, donor->bytes + start, count);
            break;
        case 6: /* Remove a value, and the comma or colon after it. */
            end = any_value(input, &at);
            replace(at, end + (end < input->length && input->bytes[end] != '\n'), "", 0);
            break;
        case 7: /* Replace the rest of the input by the end of another input. */
            start = any_position(donor);
            replace(at, input->length, donor->bytes + start, donor->length - start);
            break;
        case 8: /* Repeat a key, a value or a whole line, so that columns outgrow their buffers. */
            end = any_value(input, &at);
            if (draw(2)) {
                while (at > 1 && input->bytes[at - 1] != '\n') at--;
                while (end < input->length && input->bytes[end - 1] != '\n') end++;
            } else if (end < input->length) end++;
            for (uint64_t times = 1ull << draw(draw(draw(8) + 1) + 1); times > 0; times--)
                replace(at, at, input->bytes + at, end - at);
            break;
        case 9:
            end = draw(4) ? at + (int)draw((uint64_t)(input->length - at) + 1) : input->length;
            replace(at, end, "", 0);
            break;
        case 10: /* Replace a number, or insert one. */
            while (at > 1 && is_one_of(input->bytes[at - 1], "0123456789")) at--;
            while (end < input->length && is_one_of(input->bytes[end], "0123456789")) end++;
            count = snprintf(made, sizeof made, "%" PRIu64, draw(UINT64_C(1) << 53) >> draw(53));
            replace(at, end, made, count);
            break;
        case 11: /* Insert an escape. */
            count = snprintf(made, sizeof made, draw(4) ? "\\u%04x" : "\\%c", (unsigned)draw(0x10000) >> draw(16) | 32);
            replace(at, at, made, count);
            break;
        case 12: /* Insert a member with a key of the schema, and a token or a value of another input. */
            any_value(input, &at);
            replace(at, at, ",", 1);
            if (draw(2)) replace(at, at, made, count);
            else {
                count = any_value(donor, &start) - start;
                replace(at, at, donor->bytes + start, count);
            }
            count = snprintf(made, sizeof made, "\"%.*s\":", (int)node->key_length, (char *)schema->keys + node->key);
            replace(at, at, made, count);
            break;
        case 13: /* Insert bytes that are rarely UTF-8. */
            count = (int)draw(4) + 1;
            for (int i = 0; i < count; i++) made[i] = (char)(0x80 | draw(0x80));
            replace(at, at, made, count);
            break;
        case 14:
            made[0] = (char)draw(256);
            replace(at, at + (at < input->length), made, 1);
            break;
        default:
            if (at < input->length) input->bytes[at] ^= (uint8_t)(1 << draw(8));
    }
}

/* ---- The corpus ------------------------------------------------------------------------------------------------- */

static void add_to_corpus(void) {
    corpus = realloc(corpus, (size_t)(corpus_length + 1) * sizeof *corpus);
    corpus[corpus_length] = malloc(sizeof *input);
    *corpus[corpus_length++] = *input;
}

static void read_input(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    input->length = (int)fread(input->bytes, 1, INPUT_SIZE, file);
    fclose(file);
}

/* Write the input to a file in a folder. The name of the file is a digest of the input. Return the path of the file. */
static const char *written(const char *folder) {
    static char path[4096];
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    mix(&digest, input->bytes, input->length);
    snprintf(path, sizeof path, "%s/%016" PRIx64, folder, digest);
    FILE *file = fopen(path, "wb");
    size_t length = (size_t)input->length;
    if (file == NULL || fwrite(input->bytes, 1, length, file) != length || fclose(file) != 0) perror(path);
    return path;
}

static int by_length(const void *one, const void *two) {
    const struct Input *a = *(struct Input *const *)one, *b = *(struct Input *const *)two;
    return a->length != b->length ? b->length - a->length : memcmp(a->bytes, b->bytes, (size_t)a->length);
}

/* Write inputs that together reach all edges. Try long inputs first, because one long input replaces many short
 * ones. */
static void keep_corpus(const char *folder) {
    int kept = 0;
    memset(reached, 0, sizeof reached);
    edge_count = 0;
    qsort(corpus, (size_t)corpus_length, sizeof *corpus, by_length);
    for (int i = 0; i < corpus_length && kept < KEPT_COUNT; i++) {
        int before = edge_count;
        *input = *corpus[i];
        is_traced = true;
        execute(false);
        if (edge_count == before) continue;
        written(folder);
        kept++;
    }
    printf("%d inputs kept, %d edges\n", kept, edge_count);
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void report(double seconds) {
    printf("%" PRIu64 " executions, %d inputs, %d edges, %.0f executions per second\n", executions, corpus_length,
           edge_count, (double)executions / seconds);
    fflush(stdout);
}

/* End this process by SIGPROF after `seconds` of CPU time. A limit on the elapsed time would also count other
 * processes. */
static void limit_cpu_time(int seconds) {
    struct itimerval timer = {.it_value = {.tv_sec = seconds}};
    setitimer(ITIMER_PROF, &timer, NULL);
}

static void fuzz(char **paths, uint64_t most, double seconds) {
    enum { TRIES_TIMED = 4096, SECONDS_ALLOWED = 60, SECONDS_REPORTED = 60 };
    double start = now(), reported = 0;
    for (; *paths != NULL; paths++) {
        limit_cpu_time(SECONDS_ALLOWED);
        read_input(*paths);
        is_traced = true;
        execute(true);
        add_to_corpus();
    }
    for (uint64_t tries = 0; executions < most; tries++) {
        if (tries % TRIES_TIMED == 0) {
            double elapsed = now() - start;
            limit_cpu_time(SECONDS_ALLOWED);
            if (elapsed > seconds) break;
            if (elapsed > reported + SECONDS_REPORTED) report(reported = elapsed);
        }
        /* Choose the shorter of two inputs, because short inputs take less time, and find failures equally well. */
        const struct Input *first = any_input(), *second = any_input();
        const struct Input *shorter = first->length < second->length ? first : second;
        input->length = shorter->length;
        memcpy(input->bytes, shorter->bytes, (size_t)shorter->length);
        /* Usually apply few mutations, because an input with many mutations contains almost no valid JSON. */
        for (uint64_t i = draw(draw(6) + 1) + 1; i > 0; i--) mutate();
        is_traced = draw(4) == 0;
        if (execute(false)) add_to_corpus();
    }
    report(now() - start);
}

int main(int count, char **arguments) {
    uint64_t most = UINT64_MAX, seed = 1;
    double seconds = 1e9;
    const char *failures = ".", *kept = NULL;
    for (int option; (option = getopt(count, arguments, "n:t:s:f:k:")) != -1;) {
        if (option == 'n') most = strtoull(optarg, NULL, 10);
        else if (option == 't') seconds = strtod(optarg, NULL);
        else if (option == 's') seed = strtoull(optarg, NULL, 10);
        else if (option == 'f') failures = optarg;
        else if (option == 'k') kept = optarg;
        else return 2;
    }
    if (optind == count) {
        fprintf(stderr, "There is no input.\n");
        return 2;
    }
    randomness = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    input = mmap(NULL, sizeof *input, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = input == MAP_FAILED ? -1 : fork();
    if (child < 0) {
        perror("fuzz");
        return 2;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        make_targets();
        fuzz(arguments + optind, most, seconds);
        if (kept != NULL) keep_corpus(kept);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status == 0) return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) return 2;
    fprintf(stderr, "%s: it failed with this input.\n", written(failures));
    if (WIFSIGNALED(status)) psignal(WTERMSIG(status), "The signal was");
    return 1;
}
