/* Tokens of JSON text.
 *
 * A function that reads a token returns the position after the token, or NULL if the text is not the expected token.
 * `end` is the newline at the end of the line, or a later end of the text. No token contains a newline, so loops that
 * read single bytes need no other bound.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef const uint8_t *text;

/* The deepest nesting of a value that the decoder keeps, and of a value that it skips. The careful rules accept values
 * that are nested more deeply than KEPT_DEPTH. */
enum { KEPT_DEPTH = 512, MAX_DEPTH = 8192 };

static const int64_t SECONDS_BELOW = INT64_C(100000000000);
static const int64_t EARLIEST_MICROS = INT64_C(-62135596800000000); /* 0001-01-01T00:00:00 */
static const int64_t LATEST_MICROS = INT64_C(253402300799999999);   /* 9999-12-31T23:59:59.999999 */
static const int64_t DAY_MICROS = INT64_C(86400000000);

static inline bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

static inline text past_space(text at) {
    while (*at == ' ' || *at == '\t' || *at == '\r') at++;
    return at;
}

static inline text literal(text at, text end, const char *name, int64_t length) {
    return end - at >= length && memcmp(at, name, (size_t)length) == 0 ? at + length : NULL;
}

static inline void set_bit(uint8_t *bitmap, int64_t at, bool value) {
    uint8_t bit = (uint8_t)(1u << (at & 7));
    bitmap[at >> 3] = value ? bitmap[at >> 3] | bit : bitmap[at >> 3] & (uint8_t)~bit;
}

static inline bool bit(const uint8_t *bitmap, int64_t at) { return bitmap[at >> 3] >> (at & 7) & 1; }

/* Return the position of the next member or element. After the last one, set `*is_last`, and return the position after
 * the closing bracket. Return NULL if neither a comma nor the closing bracket follows. */
static inline text following(text at, uint8_t closing, bool *is_last) {
    at = past_space(at);
    *is_last = *at == closing;
    if (*at != ',' && !*is_last) return NULL;
    return *is_last ? at + 1 : past_space(at + 1);
}

/* ---- Strings ---------------------------------------------------------------------------------------------------- */

static inline int hex_digit(uint8_t byte) {
    if (is_digit(byte)) return byte - '0';
    uint8_t letter = (uint8_t)((byte | 0x20) - 'a');
    return letter < 6 ? letter + 10 : -1;
}

/* Return the code unit that four hexadecimal digits represent, or -1 if a byte is not a hexadecimal digit. */
static inline int32_t code_unit(text at) {
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

#if defined(__SSE2__)
#include <emmintrin.h>
enum { LANES = 16 };
/* Return a mask with one bit for each of 16 bytes. A bit is set if a JSON string cannot contain the byte unescaped: for
 * quotes, backslashes and control characters. */
static inline uint32_t special_bytes(text at) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at), control = _mm_set1_epi8(0x1f);
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), escape = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i below = _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes);
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, escape), below));
}
static inline bool has_only_ascii(text at) {
    return _mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)at)) == 0;
}
static inline int first_lane(uint32_t bits) { return __builtin_ctz(bits); }
#elif defined(__aarch64__)
#include <arm_neon.h>
enum { LANES = 16 };
/* Return the same mask, but with four bits for each of 16 bytes. */
static inline uint64_t special_bytes(text at) {
    uint8x16_t bytes = vld1q_u8(at);
    uint8x16_t found = vorrq_u8(vorrq_u8(vceqq_u8(bytes, vdupq_n_u8('"')), vceqq_u8(bytes, vdupq_n_u8('\\'))),
                                vcleq_u8(bytes, vdupq_n_u8(0x1f)));
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(found), 4)), 0);
}
static inline bool has_only_ascii(text at) { return vmaxvq_u8(vld1q_u8(at)) < 0x80; }
static inline int first_lane(uint64_t bits) { return __builtin_ctzll(bits) / 4; }
#else
#error "The decoder is for x86-64 and arm64."
#endif

/* Return the position after the closing quote of a string, or NULL if the string is invalid. `at` is the position after
 * the opening quote. */
static inline text string_end(text at, text end, bool *has_escapes) {
    *has_escapes = false;
    for (;;) {
        while (end - at >= LANES) {
            __typeof__(special_bytes(at)) special = special_bytes(at);
            if (special) {
                at += first_lane(special);
                break;
            }
            at += LANES;
        }
        while (*at != '"' && *at != '\\' && *at > 0x1f) at++;
        if (*at == '"') return at + 1;
        if (*at != '\\') return NULL;
        *has_escapes = true;
        switch (at[1]) {
            case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': at += 2; break;
            case 'u':
                if (code_unit(at + 2) < 0) return NULL;
                at += 6;
                break;
            default: return NULL;
        }
    }
}

/* Write the unescaped content of a string that `string_end` has accepted. Return the end of the written bytes, or NULL
 * if the string contains a lone surrogate. The content is never longer than the escaped string. */
static inline uint8_t *unescaped(text at, text end, uint8_t *to) {
    while (at < end) {
        text escape = memchr(at, '\\', (size_t)(end - at));
        int64_t plain = (escape ? escape : end) - at;
        memcpy(to, at, (size_t)plain);
        to += plain;
        at += plain;
        if (escape == NULL) break;
        uint8_t kind = at[1];
        at += 2;
        if (kind != 'u') {
            *to++ = kind == 'n' ? '\n' : kind == 't' ? '\t' : kind == 'r' ? '\r' : kind == 'b' ? '\b'
                : kind == 'f' ? '\f' : kind;
            continue;
        }
        uint32_t point = (uint32_t)code_unit(at);
        at += 4;
        if (point >= 0xd800 && point < 0xe000) {
            int32_t low = point < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? code_unit(at + 2) : -1;
            if (low < 0xdc00 || low > 0xdfff) return NULL;
            point = 0x10000 + ((point - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
            at += 6;
        }
        if (point < 0x80) *to++ = (uint8_t)point;
        else {
            int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
            *to++ = (uint8_t)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | point >> (6 * more));
            while (more--) *to++ = (uint8_t)(0x80 | (point >> (6 * more) & 0x3f));
        }
    }
    return to;
}

/* Return whether bytes are UTF-8, by the table of well-formed sequences in the Unicode Standard (3.9, table 3-7). */
static inline bool is_utf8(text at, text end) {
    while (at < end) {
        if (end - at >= LANES && has_only_ascii(at)) {
            at += LANES;
            continue;
        }
        uint8_t first = *at;
        if (first < 0x80) {
            at++;
            continue;
        }
        int more = first >= 0xc2 && first <= 0xdf ? 1 : first >= 0xe0 && first <= 0xef ? 2
            : first >= 0xf0 && first <= 0xf4 ? 3 : 0;
        if (more == 0 || end - at <= more) return false;
        uint8_t lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        uint8_t highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        if (at[1] < lowest || at[1] > highest) return false;
        for (int i = 2; i <= more; i++)
            if ((at[i] & 0xc0) != 0x80) return false;
        at += 1 + more;
    }
    return true;
}

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

struct Number {
    uint64_t mantissa;    /* the first 19 significant digits */
    int64_t exponent;     /* the power of ten by which to multiply the mantissa */
    int64_t digits;       /* the number of significant digits */
    bool is_negative;
    bool is_integer;      /* whether the text has neither a point nor an exponent */
    bool has_exponent;
};

enum { MAX_DIGITS = 19, FAR_EXPONENT = 10000 };

static inline text digits_of(text at, struct Number *number, bool is_fraction) {
    for (; is_digit(*at); at++) {
        uint8_t digit = (uint8_t)(*at - '0');
        if (number->digits < MAX_DIGITS) {
            number->mantissa = number->mantissa * 10 + digit;
            number->exponent -= is_fraction;
        } else number->exponent += !is_fraction;
        number->digits += number->digits || digit;
    }
    return at;
}

/* Read a JSON number. If `may_have_zeros` is set, as for numbers in quotes, the number may begin with zeros. */
static inline text number_of(text at, struct Number *number, bool may_have_zeros) {
    *number = (struct Number){0};
    number->is_negative = *at == '-';
    at += number->is_negative;
    text start = at;
    at = digits_of(at, number, false);
    if (at == start || (*start == '0' && at - start > 1 && !may_have_zeros)) return NULL;
    number->is_integer = true;
    if (*at == '.') {
        number->is_integer = false;
        start = ++at;
        at = digits_of(at, number, true);
        if (at == start) return NULL;
    }
    if ((*at | 0x20) == 'e') {
        number->is_integer = false;
        number->has_exponent = true;
        at++;
        bool is_negative = *at == '-';
        at += is_negative || *at == '+';
        int32_t exponent = 0;
        start = at;
        for (; is_digit(*at); at++)
            if (exponent < FAR_EXPONENT) exponent = exponent * 10 + (*at - '0');
        if (at == start) return NULL;
        number->exponent += is_negative ? -exponent : exponent;
    }
    return at;
}

/* Skip a JSON number. */
static inline text number_end(text at) {
    at += *at == '-';
    text start = at;
    while (is_digit(*at)) at++;
    if (at == start || (*start == '0' && at - start > 1)) return NULL;
    if (*at == '.') {
        start = ++at;
        while (is_digit(*at)) at++;
        if (at == start) return NULL;
    }
    if ((*at | 0x20) == 'e') {
        at++;
        at += *at == '-' || *at == '+';
        start = at;
        while (is_digit(*at)) at++;
        if (at == start) return NULL;
    }
    return at;
}

enum { LOWEST_POWER = -342, HIGHEST_POWER = 308 };

/* Compute the double nearest to a number. Return false if the algorithm cannot determine the double, or if the double
 * is subnormal or infinite.
 *
 * Source: Daniel Lemire, "Number Parsing at a Gigabyte per Second", 2021, section 5. `powers` contains each power of
 * five from LOWEST_POWER to HIGHEST_POWER, normalised to 128 bits, as two 64-bit words with the higher word first. */
static inline bool nearest_double(const struct Number *number, const uint64_t *powers, double *value) {
    uint64_t bits = (uint64_t)number->is_negative << 63;
    int64_t exponent = number->exponent;
    if (number->mantissa != 0) {
        if (number->digits > MAX_DIGITS || exponent < LOWEST_POWER || exponent > HIGHEST_POWER) return false;
        int zeros = __builtin_clzll(number->mantissa);
        uint64_t mantissa = number->mantissa << zeros;
        const uint64_t *power = powers + 2 * (exponent - LOWEST_POWER);
        unsigned __int128 product = (unsigned __int128)mantissa * power[0];
        uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
        /* Only if these nine bits are set can the lower word of the power change the 55 bits that are used. */
        if ((high & 0x1ff) == 0x1ff) {
            uint64_t more = (uint64_t)((unsigned __int128)mantissa * power[1] >> 64);
            low += more;
            high += low < more;
        }
        /* The product may then be too small by one. Section 5 of the source proves that it is not for these powers. */
        if (low == UINT64_MAX && (exponent < -27 || exponent > 55)) return false;
        int upper = (int)(high >> 63);
        uint64_t rounded = high >> (upper + 9);
        /* 217706 / 65536 is nearly log2(10), so the first term is the binary exponent of the power of ten, rounded
         * down. */
        int64_t binary = ((217706 * exponent) >> 16) + 63 + upper - zeros + 1023;
        if (binary <= 0) return false;
        /* If the number is exactly between two doubles, round to the even one. */
        if (low <= 1 && exponent >= -4 && exponent <= 23 && (rounded & 3) == 1 && rounded << (upper + 9) == high)
            rounded &= ~UINT64_C(1);
        rounded = (rounded + (rounded & 1)) >> 1;
        if (rounded >= UINT64_C(1) << 53) {
            rounded = UINT64_C(1) << 52;
            binary++;
        }
        if (binary >= 0x7ff) return false;
        bits |= (uint64_t)binary << 52 | (rounded & ~(UINT64_C(1) << 52));
    }
    memcpy(value, &bits, sizeof bits);
    return true;
}

/* ---- Dates and times -------------------------------------------------------------------------------------------- */

/* Return the value of `count` digits, or -1 if there are fewer digits. */
static inline int32_t digits_at(text at, int count) {
    int32_t value = 0;
    for (int i = 0; i < count; i++) {
        if (!is_digit(at[i])) return -1;
        value = value * 10 + (at[i] - '0');
    }
    return value;
}

/* Read a date such as `2024-02-29`, from the years 1 to 9999, as days since 1970-01-01. */
static inline text day_of(text at, int64_t *day) {
    static const uint8_t lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int32_t year = digits_at(at, 4);
    if (year < 1 || at[4] != '-') return NULL;
    int32_t month = digits_at(at + 5, 2);
    if (month < 1 || month > 12 || at[7] != '-') return NULL;
    int32_t of_month = digits_at(at + 8, 2);
    bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (of_month < 1 || of_month > lengths[month - 1] || (month == 2 && of_month == 29 && !is_leap)) return NULL;
    /* Count years from March, so that a leap day is the last day of a year. */
    int64_t years = year - (month <= 2), months = (month + 9) % 12;
    int64_t days = years * 365 + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + of_month - 1;
    /* 719468 days lie between 0000-03-01 and 1970-01-01. */
    *day = days - 719468;
    return at + 10;
}

/* Read a date, and optionally a time and an offset from UTC. `micros` gets the microseconds since 1970 in local time,
 * and `ahead` gets the offset in microseconds. */
static inline text moment_of(text at, int64_t *micros, int64_t *ahead) {
    int64_t day;
    at = day_of(at, &day);
    if (at == NULL) return NULL;
    *micros = day * DAY_MICROS;
    *ahead = 0;
    if (*at != 'T' && *at != ' ') return at;
    int32_t hour = digits_at(at + 1, 2), second = 0, fraction = 0;
    if (hour < 0 || hour > 23 || at[3] != ':') return NULL;
    int32_t minute = digits_at(at + 4, 2);
    if (minute < 0 || minute > 59) return NULL;
    at += 6;
    if (*at == ':') {
        second = digits_at(at + 1, 2);
        if (second < 0 || second > 59) return NULL;
        at += 3;
        if (*at == '.') {
            int32_t unit = 1000000;
            text start = ++at;
            for (; is_digit(*at) && unit > 1; at++) fraction += (*at - '0') * (unit /= 10);
            if (at == start) return NULL;
            /* Zeros after the sixth digit do not change the value. Other digits would, so the caller then refuses the
             * text. */
            while (*at == '0') at++;
        }
    }
    *micros += ((int64_t)(hour * 3600 + minute * 60 + second)) * 1000000 + fraction;
    if (*at == 'Z') return at + 1;
    if (*at != '+' && *at != '-') return at;
    bool is_behind = *at == '-';
    int32_t hours = digits_at(at + 1, 2), minutes = 0;
    if (hours < 0 || hours > 23) return NULL;
    at += 3;
    if (*at == ':' || is_digit(*at)) {
        at += *at == ':';
        minutes = digits_at(at, 2);
        if (minutes < 0 || minutes > 59) return NULL;
        at += 2;
    }
    *ahead = (int64_t)(hours * 3600 + minutes * 60) * 1000000 * (is_behind ? -1 : 1);
    return at;
}

/* ---- Any value -------------------------------------------------------------------------------------------------- */

/* Skip the key of a member, up to its value. */
static inline text past_key(text at, text end) {
    bool has_escapes;
    at = *at == '"' ? string_end(at + 1, end, &has_escapes) : NULL;
    if (at == NULL || *(at = past_space(at)) != ':') return NULL;
    return past_space(at + 1);
}

/* Skip a value. Return NULL if the value is not JSON, or is nested more deeply than `max_depth`. This function is not
 * recursive, so deep nesting cannot overflow the stack. */
static text skipped(text at, text end, int max_depth) {
    uint8_t objects[MAX_DEPTH / 8];  /* one bit for each open object or array, which is set for an object */
    int depth = 0;
    for (;;) {
        bool has_escapes, is_object = *at == '{', is_last = false;
        switch (*at) {
            case '"': at = string_end(at + 1, end, &has_escapes); break;
            case 't': at = literal(at, end, "true", 4); break;
            case 'f': at = literal(at, end, "false", 5); break;
            case 'n': at = literal(at, end, "null", 4); break;
            case '{': case '[':
                at = past_space(at + 1);
                if (*at == (is_object ? '}' : ']')) {
                    at++;
                    break;
                }
                if (depth == max_depth || (is_object && (at = past_key(at, end)) == NULL)) return NULL;
                set_bit(objects, depth++, is_object);
                continue;
            default: at = number_end(at);
        }
        if (at == NULL) return NULL;
        for (;; depth--) {
            if (depth == 0) return at;
            is_object = bit(objects, depth - 1);
            if ((at = following(at, is_object ? '}' : ']', &is_last)) == NULL) return NULL;
            if (!is_last) break;
        }
        if (is_object && (at = past_key(at, end)) == NULL) return NULL;
    }
}

#endif
