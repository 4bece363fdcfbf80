// Files that people take for exported programs: recognised by their contents, and answered with
// what helps.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kiln {

// The end of a sentence that begins with the file's name: " is a pickle; ...". `head` is the beginning
// of a file that is no zip archive, some 64 bytes.
std::string describe_other_file(std::string_view head);

// The same of a zip archive without models/model.json, from the names of its entries; `pickle` is
// the beginning of the one that ends with data.pkl, if there is one.
std::string describe_other_archive(std::span<const std::string> names, std::string_view pickle);

}  // namespace kiln
