// Terminal text: words of others (files, peers) that people read on a terminal, which obeys what
// stands between the words: an escape sequence moves the cursor, hides lines, or sets a title.
// Pure; thread-safe.
#pragma once

#include <string>

namespace kiln {

// `text` with '?' for each byte of a control character but line ends and tabs: those below a blank,
// DEL, and U+0080 to U+009F in UTF-8. Its length stays.
std::string terminal_text(std::string text);

}  // namespace kiln
