// How numbers, times and keys are written: each function makes a Value with a text for people and
// the number itself for scripts. Pure functions.
#pragma once

#include <string_view>

#include "compiler_core/base/digest.h"
#include "compiler_core/page/document.h"

namespace kiln::page {

Value text(std::string_view text);
Value quiet(std::string_view text);  // beside the point
Value code(std::string_view text);
Value count(int64_t number);                // "12 345"
Value bytes(int64_t number);                // "1.5 MiB"
Value microseconds(double us);              // "81.3 us", "2.08 ms"; 0: "-"
Value seconds(double s);                    // "3.2 s", "5 min", "2.1 h"
Value share_of(double part, double whole);  // "12 %" and a bar; "-" when whole is 0
Value ago(int64_t now_ms, int64_t at_ms);   // "5 min ago"; data: Unix time in ms
Value flag(bool set, std::string_view yes, std::string_view no);

// `value` with a link, or in a tone.
Value linked(Value value, std::string link);
Value toned(Value value, Tone tone);

// A program's or kernel's key: the first 12 digits, linked to its view; the whole for scripts.
Value program_link(const Digest& key);
Value kernel_link(const Digest& key);

// One segment of a path or a query's value, percent-encoded (RFC 3986).
std::string encoded(std::string_view text);

}  // namespace kiln::page
