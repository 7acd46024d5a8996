#include "times.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DAY_SECONDS = 86400, NANOSECOND_DIGITS = 9 };

static int64_t power_of_ten(int digits) {
  int64_t power = 1;
  while (digits-- > 0) power *= 10;
  return power;
}

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t floor_rest(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

/* -------------------------------------------------------------------------------------------------- calendar --- */

/* The calendar repeats every 400 years, which are 146097 days. A year is counted from March on, so that a leap day is
 * its last one; 719468 days lie between 0000-03-01 and 1970-01-01. */
enum { ERA_YEARS = 400, ERA_DAYS = 146097, EPOCH_DAYS = 719468 };

static int64_t days_of_date(int64_t year, int month, int day) {
  int64_t from_march = month > 2 ? month - 3 : month + 9;
  int64_t shifted = year - (month <= 2), era = floor_divide(shifted, ERA_YEARS), of_era = floor_rest(shifted, ERA_YEARS);
  int64_t day_of_year = (153 * from_march + 2) / 5 + day - 1;
  return era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - EPOCH_DAYS;
}

static void date_of_days(int64_t days, int64_t* year, int* month, int* day) {
  int64_t shifted = days + EPOCH_DAYS, era = floor_divide(shifted, ERA_DAYS), of_era = floor_rest(shifted, ERA_DAYS);
  int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  int64_t day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  int64_t from_march = (5 * day_of_year + 2) / 153;
  *day = (int)(day_of_year - (153 * from_march + 2) / 5 + 1);
  *month = (int)(from_march < 10 ? from_march + 3 : from_march - 9);
  *year = year_of_era + era * ERA_YEARS + (*month <= 2);
}

static int days_of_month(int64_t year, int month) {
  static const int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  return DAYS[month - 1] + (month == 2 && leap);
}

/* --------------------------------------------------------------------------------------------------- reading --- */

typedef struct reader {
  const char* at;
  const char* end;
} reader;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool take(reader* r, char c) {
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool take_two(reader* r, int most, int* out) {
  if (r->end - r->at < 2 || !is_digit(r->at[0]) || !is_digit(r->at[1])) return false;
  *out = (r->at[0] - '0') * 10 + (r->at[1] - '0');
  r->at += 2;
  return *out <= most;
}

/* Four digits, or a sign and four to twelve: 64 bits of seconds reach that far. */
static bool take_year(reader* r, int64_t* out) {
  bool negative = take(r, '-'), is_signed = negative || take(r, '+');
  int digits = 0;
  *out = 0;
  for (; r->at < r->end && is_digit(*r->at) && digits < 12; digits++) *out = *out * 10 + (*r->at++ - '0');
  if (negative) *out = -*out;
  return is_signed ? digits >= 4 : digits == 4;
}

static bool take_date(reader* r, int64_t* out_days) {
  int64_t year;
  int month, day;
  if (!take_year(r, &year) || !take(r, '-') || !take_two(r, 12, &month) || month < 1) return false;
  if (!take(r, '-') || !take_two(r, days_of_month(year, month), &day) || day < 1) return false;
  *out_days = days_of_date(year, month, day);
  return true;
}

static bool take_fraction(reader* r, csv_moment* out) {
  int32_t value = 0;
  int digits = 0;
  for (; r->at < r->end && is_digit(*r->at) && digits < NANOSECOND_DIGITS; digits++) value = value * 10 + (*r->at++ - '0');
  out->digits = digits;
  out->nanoseconds = (int32_t)(value * power_of_ten(NANOSECOND_DIGITS - digits));
  return digits > 0;
}

/* "23:59", "23:59:59", "23:59:59.999". */
static bool take_time(reader* r, csv_moment* out) {
  int hours, minutes, seconds = 0;
  out->nanoseconds = 0;
  out->digits = 0;
  if (!take_two(r, 23, &hours) || !take(r, ':') || !take_two(r, 59, &minutes)) return false;
  if (take(r, ':')) {
    if (!take_two(r, 59, &seconds)) return false;
    if (take(r, '.') && !take_fraction(r, out)) return false;
  }
  out->seconds = hours * 3600 + minutes * 60 + seconds;
  return true;
}

/* "Z", "+01", "+0100", "+01:00", or nothing. */
static bool take_offset(reader* r, csv_moment* out) {
  int hours, minutes = 0, sign;
  out->has_offset = r->at < r->end;
  if (!out->has_offset || take(r, 'Z')) return true;
  sign = take(r, '-') ? -1 : take(r, '+') ? 1 : 0;
  if (sign == 0 || !take_two(r, 23, &hours)) return false;
  if (r->at < r->end) {
    take(r, ':');
    if (!take_two(r, 59, &minutes)) return false;
  }
  out->seconds -= sign * (hours * 3600 + minutes * 60);
  return true;
}

bool csv_read_date(const char* text, size_t bytes, int64_t* out_days) {
  reader r = {text, text + bytes};
  return take_date(&r, out_days) && r.at == r.end;
}

bool csv_read_moment(const char* text, size_t bytes, csv_moment* out) {
  reader r = {text, text + bytes};
  if (!take_date(&r, &out->days) || !(take(&r, 'T') || take(&r, ' '))) return false;
  return take_time(&r, out) && take_offset(&r, out) && r.at == r.end;
}

bool csv_moment_value(const csv_moment* moment, int digits, int64_t* out) {
  int64_t below = power_of_ten(NANOSECOND_DIGITS - digits);
  /* The largest year times the finest unit needs 90 bits. */
  __int128 seconds = (__int128)moment->days * DAY_SECONDS + moment->seconds;
  __int128 value = seconds * power_of_ten(digits) + moment->nanoseconds / below;
  if (moment->nanoseconds % below != 0) return false;
  *out = (int64_t)value;
  return value == *out;
}

/* ---------------------------------------------------------------------------------------- as values of a type --- */

csv_parsed csv_parse_date(const csv_type* type, const char* text, size_t bytes, void* to) {
  int64_t days;
  int32_t value;
  (void)type;
  if (!csv_read_date(text, bytes, &days)) return CSV_NOT_ONE;
  value = (int32_t)days;
  if (value != days) return CSV_TOO_BIG;
  memcpy(to, &value, sizeof value);
  return CSV_PARSED;
}

csv_parsed csv_parse_time(const csv_type* type, const char* text, size_t bytes, void* to) {
  reader r = {text, text + bytes};
  csv_moment moment = {0};
  int64_t value;
  if (!take_time(&r, &moment) || r.at != r.end) return CSV_NOT_ONE;
  if (!csv_moment_value(&moment, type->digits, &value)) return CSV_TOO_BIG;
  memcpy(to, &value, type->width);
  return CSV_PARSED;
}

csv_parsed csv_parse_timestamp(const csv_type* type, const char* text, size_t bytes, void* to) {
  csv_moment moment;
  int64_t value;
  if (!csv_read_moment(text, bytes, &moment) || moment.has_offset != type->zoned) return CSV_NOT_ONE;
  if (!csv_moment_value(&moment, type->digits, &value)) return CSV_TOO_BIG;
  memcpy(to, &value, sizeof value);
  return CSV_PARSED;
}

/* -------------------------------------------------------------------------------------------------- printing --- */

/* `digits` digits, zeros in front. */
static char* put_number(char* to, int64_t value, int digits) {
  for (int i = digits; i-- > 0; value /= 10) to[i] = (char)('0' + value % 10);
  return to + digits;
}

static char* put_part(char* to, char before, int64_t value, int digits) {
  *to = before;
  return put_number(to + 1, value, digits);
}

static char* put_date(char* to, int64_t days) {
  int64_t year;
  int month, day;
  date_of_days(days, &year, &month, &day);
  to = year < 0 || year > 9999 ? to + sprintf(to, "%+05" PRId64, year) : put_number(to, year, 4);
  return put_part(put_part(to, '-', month, 2), '-', day, 2);
}

static char* put_time(char* to, int64_t seconds, int64_t fraction, int digits) {
  to = put_number(to, seconds / 3600, 2);
  to = put_part(put_part(to, ':', seconds / 60 % 60, 2), ':', seconds % 60, 2);
  return digits > 0 ? put_part(to, '.', fraction, digits) : to;
}

size_t csv_print_date(const csv_type* type, const void* value, char* to) {
  int32_t days;
  (void)type;
  memcpy(&days, value, sizeof days);
  return (size_t)(put_date(to, days) - to);
}

size_t csv_print_time(const csv_type* type, const void* value, char* to) {
  int64_t ticks = 0, second = power_of_ten(type->digits);
  memcpy(&ticks, value, type->width);
  /* Arrow knows no other; an int32 below zero is beyond it too. */
  if (ticks < 0 || ticks >= DAY_SECONDS * second) return 0;
  return (size_t)(put_time(to, ticks / second, ticks % second, type->digits) - to);
}

size_t csv_print_timestamp(const csv_type* type, const void* value, char* to) {
  int64_t ticks, second = power_of_ten(type->digits), seconds, days;
  char* end;
  memcpy(&ticks, value, sizeof ticks);
  seconds = floor_divide(ticks, second);
  days = floor_divide(seconds, DAY_SECONDS);
  end = put_date(to, days);
  *end++ = 'T';
  end = put_time(end, floor_rest(seconds, DAY_SECONDS), floor_rest(ticks, second), type->digits);
  if (type->zoned) *end++ = 'Z';
  return (size_t)(end - to);
}
