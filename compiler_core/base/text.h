// What readers of text in several rooms do with it: blanks, words, numbers, hex. Pure functions; the
// views that they return look into the text that they were given. Letters are those of ASCII.
#pragma once

#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kiln {

// Without the characters of `blanks` at its ends.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

std::string lower_case(std::string_view text);

// What lies before the first space (all, where there is none); it and the space are taken off `text`.
std::string_view take_word(std::string_view& text);

// Whether all of `text` is a number that fits `value`, which it is then; else that may be anything.
template <class Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}
// And is not negative.
template <class Number>
bool read_count(std::string_view text, Number& value) {
  return read_number(text, value) && value >= 0;
}

// The value of a digit as to_hex() (base/signature.h) prints it, in lower case; -1: it is none.
int hex_digit(char c);

// The bytes that `hex` is, which fill `bytes`; false, and they are anything: it is something else.
bool read_hex(std::string_view hex, std::span<uint8_t> bytes);

// `text` as a URL means it: "%20" is a blank. A % with no two digits (of either case) behind it stays.
std::string percent_decoded(std::string_view text);

}  // namespace kiln
