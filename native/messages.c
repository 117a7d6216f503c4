/* Split lines of Airbyte's protocol into runs: consecutive RECORD lines of one stream.
 *
 * The scan is strict. It accepts a line only if `protocol/messages.py` certainly reads the same record in this line. It
 * leaves all other lines to that module. As in decoder.c, the text consists of whole lines, each with a newline.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "text.h"

enum Member { OTHER = 0, TYPE = 1, RECORD = 2, STREAM = 4, DATA = 8, EMITTED_AT = 16, NAMESPACE = 32 };
enum { REQUIRED = TYPE | RECORD | STREAM | DATA | EMITTED_AT };

/* The content of a string without escapes. If a namespace is absent or null, its length is -1. */
struct Name {
    text start;
    int64_t length;
};

/* The parts of a line that the scan has read. */
struct Line {
    unsigned members;     /* the members so far, as bits of `enum Member` */
    struct Name stream, namespace;
};

struct Scan {
    text end;             /* the end of the whole text, after its last newline */
    struct Line line;
    /* The beginning of an earlier line, up to its data, and the parts in it. Later lines often have the same
     * beginning. */
    text head;
    int64_t head_length;
    struct Line head_line;
};

static text plain_string(text at, text end, struct Name *name) {
    bool has_escapes;
    text after = *at == '"' ? string_end(at + 1, end, &has_escapes) : NULL;
    if (after == NULL || has_escapes) return NULL;
    *name = (struct Name){at + 1, after - at - 2};
    return after;
}

static bool is_equal(struct Name name, struct Name other) {
    return name.length == other.length && (name.length <= 0 || memcmp(name.start, other.start, (size_t)name.length) == 0);
}

static bool is_name(struct Name name, const char *content) {
    return is_equal(name, (struct Name){(text)content, (int64_t)strlen(content)});
}

/* Read the key of a member, and return the position of its value. Return NULL if there is no plain key, or if the
 * line repeats a known member. */
static text key(struct Scan *scan, text at, enum Member (*member_of)(struct Name), enum Member *member) {
    struct Name name;
    at = plain_string(at, scan->end, &name);
    if (at == NULL || *(at = past_space(at)) != ':') return NULL;
    *member = member_of(name);
    if (scan->line.members & *member) return NULL;
    scan->line.members |= *member;
    return past_space(at + 1);
}

static enum Member member_of_record(struct Name name) {
    return is_name(name, "stream") ? STREAM : is_name(name, "data") ? DATA : is_name(name, "emitted_at") ? EMITTED_AT
        : is_name(name, "namespace") ? NAMESPACE : OTHER;
}

static enum Member member_of_message(struct Name name) {
    return is_name(name, "type") ? TYPE : is_name(name, "record") ? RECORD : OTHER;
}

/* Read a record, or the rest of a record from its data on. Return the position after the record. */
static text record(struct Scan *scan, text start, text at, bool is_at_data) {
    bool is_last = false;
    if (!is_at_data) {
        if (*at != '{') return NULL;
        at = past_space(at + 1);
    }
    for (; !is_last; is_at_data = false) {
        enum Member member = DATA;
        if (!is_at_data && (at = key(scan, at, member_of_record, &member)) == NULL) return NULL;
        switch (member) {
            case DATA:
                if (!is_at_data) {
                    /* Valid even if the scan refuses the rest of this line: `message` checks UTF-8 for each line. */
                    scan->head = start;
                    scan->head_length = at - start;
                    scan->head_line = scan->line;
                }
                at = *at == '{' ? skipped(at, scan->end, MAX_DEPTH) : NULL;
                break;
            case STREAM: at = plain_string(at, scan->end, &scan->line.stream); break;
            case EMITTED_AT: at = number_end(at); break;
            case NAMESPACE:
                at = *at == 'n' ? literal(at, scan->end, "null", 4) : plain_string(at, scan->end, &scan->line.namespace);
                break;
            default: at = skipped(at, scan->end, MAX_DEPTH);
        }
        if (at == NULL || (at = following(at, '}', &is_last)) == NULL) return NULL;
    }
    return at;
}

/* Read a RECORD line. Return the position of its newline, or NULL if the scan does not accept the line. */
static text message(struct Scan *scan, text start) {
    bool is_last = false;
    int64_t length = scan->head_length;
    bool is_at_data = length && scan->end - start > length && memcmp(start, scan->head, (size_t)length) == 0;
    text at;
    if (is_at_data) {
        scan->line = scan->head_line;
        at = past_space(start + length);
    } else {
        scan->line = (struct Line){.namespace = {NULL, -1}};
        at = past_space(start);
        if (*at != '{') return NULL;
        at = past_space(at + 1);
    }
    for (; !is_last; is_at_data = false) {
        enum Member member = RECORD;
        struct Name type;
        if (!is_at_data && (at = key(scan, at, member_of_message, &member)) == NULL) return NULL;
        switch (member) {
            case RECORD: at = record(scan, start, at, is_at_data); break;
            case TYPE:
                at = plain_string(at, scan->end, &type);
                if (at != NULL && !is_name(type, "RECORD")) return NULL;
                break;
            default: at = skipped(at, scan->end, MAX_DEPTH);
        }
        if (at == NULL || (at = following(at, '}', &is_last)) == NULL) return NULL;
    }
    at = past_space(at);
    bool is_record = *at == '\n' && (scan->line.members & REQUIRED) == REQUIRED && is_utf8(start, at);
    return is_record ? at : NULL;
}

/* ---- The interface ---------------------------------------------------------------------------------------------- */

/* Consecutive lines of one stream, or consecutive lines that the scan does not accept and leaves to the caller.
 * `stream` and `namespace` are positions in the text. */
struct Run {
    int64_t start, end, lines;
    int64_t stream, stream_length;          /* The length is -1 if the caller must decode the lines. */
    int64_t namespace, namespace_length;    /* The length is -1 without a namespace. */
};

/* Split a text of whole lines into at most `capacity` runs. Return the number of runs. If the text contains more runs,
 * the caller must split the rest of the text, after the last run, with another call. */
int64_t split_messages(text lines, int64_t length, struct Run *runs, int64_t capacity) {
    struct Scan scan = {.end = lines + length};
    static const struct Name NONE = {NULL, -1};
    struct Name stream = NONE, namespace = NONE;  /* the names of the last run */
    int64_t count = 0;
    /* Without a newline at the end, loops that read single bytes would leave the text. */
    if (length > 0 && lines[length - 1] != '\n') return 0;
    for (text at = lines, end; at < scan.end; at = end + 1) {
        end = message(&scan, at);
        struct Line line = end != NULL ? scan.line : (struct Line){0, NONE, NONE};
        if (end == NULL) end = memchr(at, '\n', (size_t)(scan.end - at));
        if (count == 0 || !is_equal(line.stream, stream) || !is_equal(line.namespace, namespace)) {
            /* The line begins another run. The caller passes it again with the rest of the text. */
            if (count == capacity) break;
            stream = line.stream;
            namespace = line.namespace;
            runs[count++] = (struct Run){
                at - lines, 0, 0,
                stream.length < 0 ? 0 : stream.start - lines, stream.length,
                namespace.length < 0 ? 0 : namespace.start - lines, namespace.length,
            };
        }
        runs[count - 1].lines++;
        runs[count - 1].end = end + 1 - lines;
    }
    return count;
}
