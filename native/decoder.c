/* Decode RECORD lines of Airbyte's protocol into Arrow arrays.
 *
 * The decoder is strict. It accepts a value only if the result certainly equals the result of the careful rules in
 * `records/values`. The caller must apply the careful rules to everything else:
 *
 * - If the decoder does not accept a value in a line of valid JSON, the value is a *cell*. The column has a null in
 *   this row, and the caller gets the position of the value's text.
 * - If the decoder does not accept a line, the line is *refused*. The line has no row, and the caller gets its
 *   position.
 *
 * The text consists of whole lines, each of which ends with a newline. No token of JSON contains a newline, so a loop
 * that reads one byte at a time always stops at the end of the line. Only loads of several bytes check the bounds.
 *
 * The arrays follow Arrow's C data interface (https://arrow.apache.org/docs/format/CDataInterface.html). The library is
 * not linked with a C library. It uses malloc, calloc, realloc, free, memcmp, memcpy, memset and memchr of the process.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "text.h"

/* ---- Columns ---------------------------------------------------------------------------------------------------- */

enum Kind {
    BOOLEAN, INTEGER, FLOAT, EXACT_FLOAT, DECIMAL, STRING, JSON, DATE, TIMESTAMP, LOCAL_TIMESTAMP, STRUCT, LIST,
    CAREFUL /* Each value of the column, except null, is a cell. */
};

/* The caller's declaration of a column. The nodes of nested columns follow the node of their parent. */
struct Node {
    int32_t kind;
    int32_t children;     /* the number of fields of a struct; 1 for a list */
    int32_t precision;    /* the precision of a decimal */
    int32_t scale;
    int64_t key;          /* the offset of the column's key in the text of all keys, which is UTF-8 */
    int64_t key_length;
};

/* A column under construction. `quoted` is the key in quotes. It is empty if JSON must spell the key with escapes. */
struct Column {
    enum Kind kind;
    int32_t precision, scale;
    const uint8_t *key;
    int64_t key_length;
    uint8_t *quoted;
    int64_t quoted_length;
    struct Column *children;
    int32_t count;
    int32_t next;         /* the index of the child whose key probably comes next */
    int64_t seen;         /* the number of the last object that contained the key */
    int64_t length, capacity;
    uint8_t *valid;       /* a bitmap */
    uint8_t *values;      /* values of fixed size, or the offsets of strings and lists */
    uint8_t *data;        /* the bytes of strings */
    int64_t data_capacity;
};

struct Decoder {
    struct Column *columns;  /* `meta`, then the columns of the data */
    int64_t count;
    struct Column data;      /* a struct whose children are the columns of the data */
    bool is_whole;           /* whether each column contains the text of the whole data */
    const uint64_t *powers;  /* powers of five, see `nearest_double` */
    const uint8_t *text;
    const uint8_t *end;      /* the newline of the current line */
    int64_t object;          /* the number of the current object */
    bool has_no_memory;
    uint8_t *scratch;        /* the unescaped text of a key with escapes */
    int64_t scratch_capacity;
    struct Column emitted, starts, ends, numbers;                  /* one value per row */
    struct Column cell_rows, cell_columns, cell_starts, cell_ends;
    struct Column refused_starts, refused_ends, refused_numbers;
};

enum { DECIMAL_BYTES = 16, MAX_LENGTH = 0x7ffffffe };

static int64_t value_size(enum Kind kind) {
    switch (kind) {
        case DATE: case STRING: case JSON: case LIST: return 4;
        case DECIMAL: return DECIMAL_BYTES;
        case BOOLEAN: case STRUCT: return 0;
        default: return 8;
    }
}

static bool has_offsets(const struct Column *column) {
    return column->kind == STRING || column->kind == JSON || column->kind == LIST;
}

static int32_t *offsets(const struct Column *column) { return (int32_t *)(void *)column->values; }

static void *grown(struct Decoder *decoder, void *memory, int64_t size) {
    void *larger = realloc(memory, (size_t)size);
    if (larger == NULL) decoder->has_no_memory = true;
    return larger;
}

/* Reserve memory for at least one more value. Return false without memory, or if the column is full. */
static bool reserve(struct Decoder *decoder, struct Column *column) {
    if (column->length < column->capacity) return true;
    int64_t capacity = column->capacity ? column->capacity * 2 : 64;
    if (capacity > MAX_LENGTH) capacity = MAX_LENGTH;
    if (column->length >= capacity) return false;
    int64_t bitmap = (capacity + 7) / 8, before = column->valid ? (column->capacity + 7) / 8 : 0;
    uint8_t *valid = grown(decoder, column->valid, bitmap);
    if (valid == NULL) return false;
    column->valid = valid;
    memset(valid + before, 0, (size_t)(bitmap - before));
    bool is_bitmap = column->kind == BOOLEAN;
    int64_t size = is_bitmap ? bitmap : (capacity + 1) * value_size(column->kind);
    if (size && column->kind != STRUCT) {
        uint8_t *values = grown(decoder, column->values, size);
        if (values == NULL) return false;
        if (is_bitmap) memset(values + before, 0, (size_t)(bitmap - before));
        if (column->values == NULL && has_offsets(column)) memset(values, 0, 4);
        column->values = values;
    }
    column->capacity = capacity;
    return true;
}

/* Reserve memory for `more` bytes after `used` bytes, and for at least one byte, because even an empty buffer needs an
 * address. Return false without memory, or if the column is full. */
static bool reserve_data(struct Decoder *decoder, struct Column *column, int64_t used, int64_t more) {
    if (used + more > MAX_LENGTH) return false;
    if (used + more < column->data_capacity) return true;
    int64_t capacity = column->data_capacity * 2;
    if (capacity <= used + more) capacity = used + more + 1;
    if (capacity < 1024) capacity = 1024;
    uint8_t *data = grown(decoder, column->data, capacity);
    if (data == NULL) return false;
    column->data = data;
    column->data_capacity = capacity;
    return true;
}

/* Count the value that the caller has written at the end of the column. */
static void append(struct Column *column, bool is_valid) {
    set_bit(column->valid, column->length, is_valid);
    column->length++;
}

static bool append_null(struct Decoder *decoder, struct Column *column) {
    if (!reserve(decoder, column)) return false;
    int64_t at = column->length, size = value_size(column->kind);
    if (has_offsets(column)) offsets(column)[at + 1] = offsets(column)[at];
    else if (column->kind == BOOLEAN) set_bit(column->values, at, false);
    else if (size) memset(column->values + at * size, 0, (size_t)size);
    if (column->kind == STRUCT)
        for (int32_t i = 0; i < column->count; i++)
            if (!append_null(decoder, &column->children[i])) return false;
    append(column, false);
    return true;
}

static bool append_integer(struct Decoder *decoder, struct Column *column, int64_t value) {
    if (!reserve(decoder, column)) return false;
    ((int64_t *)(void *)column->values)[column->length] = value;
    append(column, true);
    return true;
}

/* Remove all values after the first `length`. Children may have more values than their parent. */
static void truncate(struct Column *column, int64_t length) {
    if (column->length > length) column->length = length;
    int64_t inside = column->kind == LIST && column->values != NULL ? offsets(column)[column->length] : column->length;
    for (int32_t i = 0; i < column->count; i++) truncate(&column->children[i], inside);
}

/* ---- Scalar values ---------------------------------------------------------------------------------------------- */

/* Each function returns the position after the value. If it does not accept the value, it returns NULL and leaves the
 * column unchanged. */

static text boolean(struct Decoder *decoder, struct Column *column, text at) {
    bool value = *at == 't';
    text after = value ? literal(at, decoder->end, "true", 4) : literal(at, decoder->end, "false", 5);
    if (after == NULL || !reserve(decoder, column)) return NULL;
    set_bit(column->values, column->length, value);
    append(column, true);
    return after;
}

/* Read a number, which may be in quotes, as in version 1 of the protocol. */
static text number_text(text at, struct Number *number) {
    bool is_quoted = *at == '"';
    at = number_of(at + is_quoted, number, is_quoted);
    return at == NULL || !is_quoted ? at : *at == '"' ? at + 1 : NULL;
}

static text integer(struct Decoder *decoder, struct Column *column, text at) {
    struct Number number;
    at = number_text(at, &number);
    if (at == NULL || !number.is_integer || number.digits > 18) return NULL;
    int64_t value = (int64_t)number.mantissa;
    return append_integer(decoder, column, number.is_negative ? -value : value) ? at : NULL;
}

static text floating(struct Decoder *decoder, struct Column *column, text at) {
    struct Number number;
    double value;
    at = number_text(at, &number);
    if (at == NULL || !nearest_double(&number, decoder->powers, &value) || !reserve(decoder, column)) return NULL;
    /* No two numbers of up to 15 digits have the same double. */
    if (column->kind == EXACT_FLOAT && (number.digits > 15 || number.has_exponent)) return NULL;
    ((double *)(void *)column->values)[column->length] = value;
    append(column, true);
    return at;
}

static text decimal(struct Decoder *decoder, struct Column *column, text at) {
    bool is_quoted = *at == '"';
    at += is_quoted;
    bool is_negative = *at == '-';
    at += is_negative;
    text start = at;
    unsigned __int128 value = 0;
    int32_t whole = 0, fraction = 0;
    for (; is_digit(*at) && whole <= column->precision; at++, whole++) value = value * 10 + (*at - '0');
    if (whole == 0 || (!is_quoted && whole > 1 && *start == '0')) return NULL;
    if (*at == '.') {
        at++;
        for (; is_digit(*at) && fraction <= column->scale; at++, fraction++) value = value * 10 + (*at - '0');
        if (fraction == 0) return NULL;
    }
    /* A zero before the point takes up no digit of the precision: `decimal(2, 2)` stores 0.25. */
    int32_t allowed = column->precision - column->scale;
    bool is_zero = whole == 1 && *start == '0';
    if ((whole > allowed && !is_zero) || fraction > column->scale || is_digit(*at)) return NULL;
    if ((*at | 0x20) == 'e' || (is_quoted && *at++ != '"') || !reserve(decoder, column)) return NULL;
    for (; fraction < column->scale; fraction++) value *= 10;
    __int128 number = is_negative ? -(__int128)value : (__int128)value;
    memcpy(column->values + column->length * DECIMAL_BYTES, &number, DECIMAL_BYTES);
    append(column, true);
    return at;
}

static text date(struct Decoder *decoder, struct Column *column, text at) {
    int64_t day;
    if (*at != '"' || (at = day_of(at + 1, &day)) == NULL || *at != '"' || !reserve(decoder, column)) return NULL;
    ((int32_t *)(void *)column->values)[column->length] = (int32_t)day;
    append(column, true);
    return at + 1;
}

static text timestamp(struct Decoder *decoder, struct Column *column, text at) {
    int64_t micros, ahead;
    if (*at != '"' || (at = moment_of(at + 1, &micros, &ahead)) == NULL || *at != '"') return NULL;
    if (column->kind == TIMESTAMP) micros -= ahead;
    if (micros < EARLIEST_MICROS || micros > LATEST_MICROS) return NULL;
    return append_integer(decoder, column, micros) ? at + 1 : NULL;
}

/* Append the bytes of a text unchanged. */
static bool append_text(struct Decoder *decoder, struct Column *column, text from, text to) {
    if (!reserve(decoder, column)) return false;
    int64_t used = offsets(column)[column->length], size = to - from;
    if (!reserve_data(decoder, column, used, size)) return false;
    memcpy(column->data + used, from, (size_t)size);
    offsets(column)[column->length + 1] = (int32_t)(used + size);
    append(column, true);
    return true;
}

static text json(struct Decoder *decoder, struct Column *column, text at) {
    text after = skipped(at, decoder->end, KEPT_DEPTH);
    return after != NULL && append_text(decoder, column, at, after) ? after : NULL;
}

/* Append the content of a string, or the JSON text of any other value. */
static text string(struct Decoder *decoder, struct Column *column, text at) {
    if (*at != '"') return json(decoder, column, at);
    bool has_escapes;
    text after = string_end(at + 1, decoder->end, &has_escapes);
    if (after == NULL) return NULL;
    if (!has_escapes) return append_text(decoder, column, at + 1, after - 1) ? after : NULL;
    if (!reserve(decoder, column)) return NULL;
    int64_t used = offsets(column)[column->length];
    if (!reserve_data(decoder, column, used, after - at)) return NULL;
    uint8_t *to = unescaped(at + 1, after - 1, column->data + used);
    if (to == NULL) return NULL;
    offsets(column)[column->length + 1] = (int32_t)(to - column->data);
    append(column, true);
    return after;
}

/* ---- Objects and arrays ----------------------------------------------------------------------------------------- */

static text value(struct Decoder *decoder, struct Column *column, text at);

static struct Column *not_a_key(text *at) {
    *at = NULL;
    return NULL;
}

/* Return the child with the key whose opening quote is at `*at`, or NULL if no child has this key.
 *
 * Sets `*at` to the position of the member's value, or to NULL if there is no valid key. */
static struct Column *child_of(struct Decoder *decoder, struct Column *parent, text *at) {
    text start = *at, end = decoder->end;
    struct Column *child = NULL;
    if (parent->next < parent->count) {
        struct Column *expected = &parent->children[parent->next];
        int64_t length = expected->quoted_length;
        if (length && end - start > length && memcmp(start, expected->quoted, (size_t)length) == 0) {
            child = expected;
            *at = start + length;
        }
    }
    if (child == NULL) {
        bool has_escapes;
        text after = *start == '"' ? string_end(start + 1, end, &has_escapes) : NULL;
        if (after == NULL) return not_a_key(at);
        text key = start + 1;
        int64_t length = after - 1 - key;
        if (has_escapes) {
            if (length > decoder->scratch_capacity) {
                uint8_t *scratch = grown(decoder, decoder->scratch, length);
                if (scratch == NULL) return not_a_key(at);
                decoder->scratch = scratch;
                decoder->scratch_capacity = length;
            }
            uint8_t *to = unescaped(key, after - 1, decoder->scratch);
            if (to == NULL) return not_a_key(at);
            key = decoder->scratch;
            length = to - decoder->scratch;
        }
        for (int32_t i = 0; i < parent->count && child == NULL; i++) {
            int32_t index = parent->next + i < parent->count ? parent->next + i : parent->next + i - parent->count;
            struct Column *candidate = &parent->children[index];
            if (candidate->key_length == length && memcmp(candidate->key, key, (size_t)length) == 0) child = candidate;
        }
        *at = after;
    }
    if (child != NULL) {
        parent->next = (int32_t)(child - parent->children) + 1;
        if (parent->next == parent->count) parent->next = 0;
    }
    *at = past_space(*at);
    *at = **at == ':' ? past_space(*at + 1) : NULL;
    return child;
}

static text object(struct Decoder *decoder, struct Column *column, text at) {
    if (*at != '{' || !reserve(decoder, column)) return NULL;
    int64_t number = ++decoder->object;
    column->next = 0;
    at = past_space(at + 1);
    bool is_last = *at == '}';
    at += is_last;
    while (!is_last) {
        struct Column *child = child_of(decoder, column, &at);
        if (at == NULL) return NULL;
        if (child == NULL) at = skipped(at, decoder->end, MAX_DEPTH);
        else if (child->seen == number) return NULL;
        else {
            child->seen = number;
            at = value(decoder, child, at);
        }
        if (at == NULL || (at = following(at, '}', &is_last)) == NULL) return NULL;
    }
    for (int32_t i = 0; i < column->count; i++)
        if (column->children[i].seen != number && !append_null(decoder, &column->children[i])) return NULL;
    append(column, true);
    return at;
}

static text array(struct Decoder *decoder, struct Column *column, text at) {
    if (*at != '[' || !reserve(decoder, column)) return NULL;
    struct Column *element = column->children;
    at = past_space(at + 1);
    bool is_last = *at == ']';
    at += is_last;
    while (!is_last) {
        at = value(decoder, element, at);
        if (at == NULL || (at = following(at, ']', &is_last)) == NULL) return NULL;
    }
    offsets(column)[column->length + 1] = (int32_t)element->length;
    append(column, true);
    return at;
}

static text value(struct Decoder *decoder, struct Column *column, text at) {
    if (*at == 'n') {
        text after = literal(at, decoder->end, "null", 4);
        return after != NULL && append_null(decoder, column) ? after : NULL;
    }
    switch (column->kind) {
        case BOOLEAN: return boolean(decoder, column, at);
        case INTEGER: return integer(decoder, column, at);
        case FLOAT: case EXACT_FLOAT: return floating(decoder, column, at);
        case DECIMAL: return decimal(decoder, column, at);
        case STRING: return string(decoder, column, at);
        case JSON: return json(decoder, column, at);
        case DATE: return date(decoder, column, at);
        case TIMESTAMP: case LOCAL_TIMESTAMP: return timestamp(decoder, column, at);
        case STRUCT: return object(decoder, column, at);
        case LIST: return array(decoder, column, at);
        case CAREFUL: return NULL;
    }
    return NULL;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------ */

/* Append a value of a row. If the column does not accept the value, append null and add a cell. Return the position
 * after the value, or NULL if the value is not JSON. */
static text row_value(struct Decoder *decoder, struct Column *column, text at, int64_t row) {
    text after = value(decoder, column, at);
    if (after != NULL) return after;
    truncate(column, row);
    after = skipped(at, decoder->end, KEPT_DEPTH);
    bool is_kept = after != NULL && append_null(decoder, column)
        && append_integer(decoder, &decoder->cell_rows, row)
        && append_integer(decoder, &decoder->cell_columns, column - decoder->columns)
        && append_integer(decoder, &decoder->cell_starts, at - decoder->text)
        && append_integer(decoder, &decoder->cell_ends, after - decoder->text);
    return is_kept ? after : NULL;
}

static text data(struct Decoder *decoder, text at, int64_t row) {
    if (*at != '{') return NULL;
    struct Column *columns = &decoder->data;
    if (decoder->is_whole) {
        text after = NULL;
        for (int32_t i = 0; i < columns->count; i++)
            if ((after = row_value(decoder, &columns->children[i], at, row)) == NULL) return NULL;
        return after;
    }
    int64_t number = ++decoder->object;
    columns->next = 0;
    at = past_space(at + 1);
    bool is_last = *at == '}';
    at += is_last;
    while (!is_last) {
        struct Column *column = child_of(decoder, columns, &at);
        if (at == NULL) return NULL;
        if (column == NULL) at = skipped(at, decoder->end, MAX_DEPTH);
        else if (column->seen == number) return NULL;
        else {
            column->seen = number;
            at = row_value(decoder, column, at, row);
        }
        if (at == NULL || (at = following(at, '}', &is_last)) == NULL) return NULL;
    }
    return at;
}

/* Read milliseconds since 1970, or seconds if the number is too small for milliseconds. records/record.py has the same
 * rule for `emitted_at`. */
static text emitted_at(struct Decoder *decoder, text at) {
    struct Number number;
    at = number_of(at, &number, false);
    if (at == NULL || !number.is_integer || number.digits > 18) return NULL;
    int64_t emitted = number.is_negative ? -(int64_t)number.mantissa : (int64_t)number.mantissa;
    if (emitted > -SECONDS_BELOW && emitted < SECONDS_BELOW) emitted *= 1000;
    if (emitted < EARLIEST_MICROS / 1000 || emitted > LATEST_MICROS / 1000) return NULL;
    return append_integer(decoder, &decoder->emitted, emitted * 1000) ? at : NULL;
}

/* Return whether the string from `at` to its closing quote, which precedes `after`, has this content. */
static bool is_string(text at, text after, const char *content, int64_t length) {
    /* `after` is the position after the closing quote. */
    return after - at == length + 1 && memcmp(at, content, (size_t)length) == 0;
}

static text record(struct Decoder *decoder, text at, int64_t row) {
    if (*at != '{') return NULL;
    bool has_data = false, has_meta = false, has_time = false, is_last = false;
    at = past_space(at + 1);
    while (!is_last) {
        bool has_escapes;
        text key = at + 1, after = *at == '"' ? string_end(key, decoder->end, &has_escapes) : NULL;
        if (after == NULL || has_escapes) return NULL;
        at = past_space(after);
        if (*at != ':') return NULL;
        at = past_space(at + 1);
        bool *has = is_string(key, after, "data", 4) ? &has_data
            : is_string(key, after, "emitted_at", 10) ? &has_time
            : is_string(key, after, "meta", 4) ? &has_meta : NULL;
        if (has != NULL && *has) return NULL;
        if (has != NULL) *has = true;
        if (has == &has_data) at = data(decoder, at, row);
        else if (has == &has_time) at = emitted_at(decoder, at);
        else if (has == &has_meta) at = row_value(decoder, decoder->columns, at, row);
        else at = skipped(at, decoder->end, MAX_DEPTH);
        if (at == NULL || (at = following(at, '}', &is_last)) == NULL) return NULL;
    }
    return has_data && has_time ? at : NULL;
}

static bool line(struct Decoder *decoder, text at, int64_t row) {
    at = past_space(at);
    if (*at != '{') return false;
    bool has_record = false, is_last = false;
    at = past_space(at + 1);
    while (!is_last) {
        bool has_escapes;
        text key = at + 1, after = *at == '"' ? string_end(key, decoder->end, &has_escapes) : NULL;
        if (after == NULL || has_escapes) return false;
        at = past_space(after);
        if (*at != ':') return false;
        at = past_space(at + 1);
        if (is_string(key, after, "record", 6)) {
            if (has_record) return false;
            has_record = true;
            at = record(decoder, at, row);
        } else at = skipped(at, decoder->end, MAX_DEPTH);
        if (at == NULL || (at = following(at, '}', &is_last)) == NULL) return false;
    }
    return has_record && past_space(at) == decoder->end;
}

/* Add a row for a line, or refuse the line and leave the columns unchanged. Return false without memory, or if a column
 * is full. */
static bool decode_line(struct Decoder *decoder, text at, text end, int64_t number) {
    int64_t row = decoder->starts.length, cells = decoder->cell_rows.length;
    int64_t from = at - decoder->text, to = end - decoder->text;
    decoder->end = end;
    bool is_row = is_utf8(at, end) && line(decoder, at, row);
    if (decoder->has_no_memory) return false;
    if (is_row) {
        bool is_kept = true;
        for (int64_t i = 0; i < decoder->count && is_kept; i++)
            if (decoder->columns[i].length == row) is_kept = append_null(decoder, &decoder->columns[i]);
        return is_kept && append_integer(decoder, &decoder->starts, from)
            && append_integer(decoder, &decoder->ends, to) && append_integer(decoder, &decoder->numbers, number);
    }
    for (int64_t i = 0; i < decoder->count; i++) truncate(&decoder->columns[i], row);
    truncate(&decoder->emitted, row);
    truncate(&decoder->cell_rows, cells);
    truncate(&decoder->cell_columns, cells);
    truncate(&decoder->cell_starts, cells);
    truncate(&decoder->cell_ends, cells);
    return append_integer(decoder, &decoder->refused_starts, from)
        && append_integer(decoder, &decoder->refused_ends, to)
        && append_integer(decoder, &decoder->refused_numbers, number);
}

/* ---- Arrow arrays ----------------------------------------------------------------------------------------------- */

static void release(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) array->children[i]->release(array->children[i]);
        free(array->children[i]);
    }
    for (int64_t i = 0; i < array->n_buffers; i++) free((void *)(uintptr_t)array->buffers[i]);
    free(array->children);
    free(array->buffers);
    array->release = NULL;
}

/* Move a column into an array. The consumer of the array must release it. */
static bool export_column(struct Decoder *decoder, struct Column *column, struct ArrowArray *array) {
    *array = (struct ArrowArray){0};
    /* A column without values has no buffers yet, but the buffer of offsets must contain the first offset. */
    if (column->capacity == 0 && !reserve(decoder, column)) return false;
    if ((column->kind == STRING || column->kind == JSON) && !reserve_data(decoder, column, 0, 0)) return false;
    int64_t valid = 0, whole = column->length / 8;
    for (int64_t i = 0; i < whole; i++) valid += __builtin_popcount(column->valid[i]);
    for (int64_t i = whole * 8; i < column->length; i++) valid += bit(column->valid, i);
    const void **buffers = malloc(3 * sizeof *buffers);
    struct ArrowArray **children = malloc((size_t)(column->count + 1) * sizeof *children);
    if (buffers == NULL || children == NULL) {
        free(buffers);
        free(children);
        return false;
    }
    array->length = column->length;
    array->null_count = column->length - valid;
    array->buffers = buffers;
    array->children = children;
    array->release = release;
    /* Arrow permits an absent bitmap if no value is null. */
    if (array->null_count == 0) {
        free(column->valid);
        column->valid = NULL;
    }
    buffers[array->n_buffers++] = column->valid;
    column->valid = NULL;
    if (column->kind != STRUCT) buffers[array->n_buffers++] = column->values;
    column->values = NULL;
    if (column->data != NULL) buffers[array->n_buffers++] = column->data;
    column->data = NULL;
    for (int32_t i = 0; i < column->count; i++) {
        struct ArrowArray *child = malloc(sizeof *child);
        if (child == NULL) return false;
        /* `release` skips this child if its export fails. */
        child->release = NULL;
        children[array->n_children++] = child;
        if (!export_column(decoder, &column->children[i], child)) return false;
    }
    return true;
}

/* ---- The interface ---------------------------------------------------------------------------------------------- */

static int64_t columns_of(
    struct Decoder *decoder, const struct Node *nodes, int64_t count, text keys, struct Column *columns, int64_t wanted
);

static void free_columns(struct Column *columns, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (columns[i].children != NULL) free_columns(columns[i].children, columns[i].count);
        free(columns[i].children);
        free(columns[i].quoted);
        free(columns[i].valid);
        free(columns[i].values);
        free(columns[i].data);
    }
}

/* Create a column from the first node, and its children from the following nodes. Return the number of nodes used.
 * Return -1 if a node is invalid, or without memory. */
static int64_t column_of(
    struct Decoder *decoder, const struct Node *nodes, int64_t count, text keys, struct Column *column
) {
    if (count < 1 || nodes->kind < 0 || nodes->kind > CAREFUL || nodes->children < 0 || nodes->children >= count) return -1;
    if (nodes->kind != STRUCT && nodes->children != (nodes->kind == LIST)) return -1;
    column->kind = (enum Kind)nodes->kind;
    column->precision = nodes->precision;
    column->scale = nodes->scale;
    column->key = keys + nodes->key;
    column->key_length = nodes->key_length;
    bool is_plain = true;
    for (int64_t i = 0; i < column->key_length; i++)
        is_plain = is_plain && column->key[i] > 0x1f && column->key[i] != '"' && column->key[i] != '\\';
    column->quoted = grown(decoder, NULL, column->key_length + 2);
    if (column->quoted == NULL) return -1;
    column->quoted[0] = column->quoted[column->key_length + 1] = '"';
    memcpy(column->quoted + 1, column->key, (size_t)column->key_length);
    column->quoted_length = is_plain ? column->key_length + 2 : 0;
    if (nodes->children == 0) return 1;
    column->children = calloc((size_t)nodes->children, sizeof *column->children);
    if (column->children == NULL) return -1;
    column->count = nodes->children;
    int64_t used = columns_of(decoder, nodes + 1, count - 1, keys, column->children, column->count);
    return used < 0 ? -1 : used + 1;
}

static int64_t columns_of(
    struct Decoder *decoder, const struct Node *nodes, int64_t count, text keys, struct Column *columns, int64_t wanted
) {
    int64_t used = 0;
    for (int64_t i = 0; i < wanted; i++) {
        int64_t more = column_of(decoder, nodes + used, count - used, keys, &columns[i]);
        if (more < 0) return -1;
        used += more;
    }
    return used;
}

enum { INTEGER_COLUMNS = 11 };

/* Decode whole lines.
 *
 * The `total` nodes declare `meta`, then `count - 1` columns of the data, each followed by its children. The function
 * fills `arrays` with 11 arrays of integers, then with one array per column. The arrays of integers contain:
 *
 * - for each row: its time (microseconds since 1970, UTC), and the start, end and number of its line;
 * - for each cell: its row, its column (0 is `meta`), its start and its end;
 * - for each refused line: its start, end and number.
 *
 * Starts and ends are offsets in the text. Numbers of lines count from 0 and include empty lines.
 *
 * Returns the number of lines. If there is not enough memory, if a node is invalid, or if the text does not end with a
 * newline, returns -1, and `arrays` contains no arrays to release. */
int64_t decode_records(
    const struct Node *nodes, int64_t total, int64_t count, const uint8_t *keys, bool is_whole, const uint64_t *powers,
    const uint8_t *lines, int64_t length, struct ArrowArray *arrays
) {
    struct Decoder decoder = {.count = count, .is_whole = is_whole, .powers = powers, .text = lines};
    struct Column *integers[INTEGER_COLUMNS] = {
        &decoder.emitted, &decoder.starts, &decoder.ends, &decoder.numbers,
        &decoder.cell_rows, &decoder.cell_columns, &decoder.cell_starts, &decoder.cell_ends,
        &decoder.refused_starts, &decoder.refused_ends, &decoder.refused_numbers,
    };
    for (int i = 0; i < INTEGER_COLUMNS; i++) integers[i]->kind = INTEGER;
    bool is_done = count > 0 && (length == 0 || lines[length - 1] == '\n');
    decoder.columns = is_done ? calloc((size_t)count, sizeof *decoder.columns) : NULL;
    is_done = decoder.columns != NULL && columns_of(&decoder, nodes, total, keys, decoder.columns, count) == total;
    if (is_done) {
        decoder.data.kind = STRUCT;
        decoder.data.children = decoder.columns + 1;
        decoder.data.count = (int32_t)(count - 1);
    }
    int64_t number = 0, exported = 0;
    for (text at = lines, end; is_done && at < lines + length; at = end + 1, number++) {
        end = memchr(at, '\n', (size_t)(lines + length - at));
        if (end > at) is_done = decode_line(&decoder, at, end, number);
    }
    for (; is_done && exported < INTEGER_COLUMNS + count; exported++) {
        struct Column *column =
            exported < INTEGER_COLUMNS ? integers[exported] : &decoder.columns[exported - INTEGER_COLUMNS];
        is_done = export_column(&decoder, column, &arrays[exported]);
    }
    if (!is_done)
        for (int64_t i = 0; i < exported; i++)
            if (arrays[i].release != NULL) arrays[i].release(&arrays[i]);
    for (int i = 0; i < INTEGER_COLUMNS; i++) free_columns(integers[i], 1);
    if (decoder.columns != NULL) free_columns(decoder.columns, count);
    free(decoder.columns);
    free(decoder.scratch);
    return is_done ? number : -1;
}
