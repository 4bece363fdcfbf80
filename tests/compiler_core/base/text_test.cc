#include "compiler_core/base/text.h"

#include <gtest/gtest.h>

#include <array>

#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

TEST(TextTest, TrimmedTakesBlanksOffTheEndsAlone) {
  EXPECT_EQ(trimmed(" \ta b\r\n"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \r\n"), "");
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed("\n a \n", " "), "\n a \n");
}

TEST(TextTest, LowerCaseLeavesWhatIsNoLetterOfAscii) {
  EXPECT_EQ(lower_case("Content-TYPE [@`{\xc3\x84"), "content-type [@`{\xc3\x84");
}

TEST(TextTest, WordsAreTakenOneByOne) {
  std::string_view text = "one  three";
  EXPECT_EQ(take_word(text), "one");
  EXPECT_EQ(take_word(text), "");
  EXPECT_EQ(take_word(text), "three");
  EXPECT_EQ(text, "");
  EXPECT_EQ(take_word(text), "");
}

TEST(TextTest, ANumberIsAllOfTheText) {
  int number = 0;
  EXPECT_TRUE(read_number("-12", number));
  EXPECT_EQ(number, -12);
  for (const char* text : {"", " 1", "1 ", "+1", "1.5", "0x1", "2147483648", "one"})
    EXPECT_FALSE(read_number(text, number)) << text;
  double real = 0;
  EXPECT_TRUE(read_number("0.5", real));
  EXPECT_EQ(real, 0.5);
  uint64_t large = 0;
  EXPECT_TRUE(read_number("18446744073709551615", large));
  EXPECT_EQ(large, UINT64_MAX);
  EXPECT_FALSE(read_number("-1", large));
}

TEST(TextTest, ACountIsNotNegative) {
  int count = -1;
  EXPECT_TRUE(read_count("0", count));
  EXPECT_EQ(count, 0);
  EXPECT_FALSE(read_count("-1", count));
  EXPECT_FALSE(read_count("1x", count));
}

TEST(TextTest, HexIsReadAsItIsPrinted) {
  std::array<uint8_t, 256> bytes{}, read{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  const std::string hex = to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  EXPECT_TRUE(read_hex(hex, read));
  EXPECT_EQ(read, bytes);

  std::array<uint8_t, 1> one{};
  EXPECT_TRUE(read_hex("7f", one));
  EXPECT_EQ(one[0], 0x7f);
  for (const char* text : {"", "7", "7f0", "7F", "g0", "0g", "0x", " 7", "/0", "0:", "`0"})
    EXPECT_FALSE(read_hex(text, one)) << text;
}

TEST(TextTest, APercentSignWithNoDigitsStays) {
  EXPECT_EQ(percent_decoded("a%20b%2Fc%2f+"), "a b/c/+");
  for (const char* text : {"%", "%2", "100%", "%g0", "%0g", "%-1", "% 1"})
    EXPECT_EQ(percent_decoded(text), text);
}

}  // namespace
}  // namespace kiln
