#include "compiler_core/base/terminal_text.h"

namespace kiln {

std::string terminal_text(std::string text) {
  constexpr unsigned char kBeforeC1 = 0xC2;  // the first byte of U+0080 to U+009F
  unsigned char before = 0;
  for (char& each : text) {
    const auto byte = static_cast<unsigned char>(each);
    const bool is_c1 = before == kBeforeC1 && byte >= 0x80 && byte < 0xA0;
    if (is_c1) (&each)[-1] = '?';
    if (is_c1 || (byte < ' ' && byte != '\n' && byte != '\t') || byte == 0x7F) each = '?';
    before = byte;
  }
  return text;
}

}  // namespace kiln
