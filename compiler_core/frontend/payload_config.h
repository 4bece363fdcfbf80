// The archive's lists of stored tensors: data/weights/model_weights_config.json and the one for
// constants and non-persistent buffers.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "compiler_core/frontend/exported_model.h"

namespace kiln {

struct PayloadEntry {
  std::string path_name;  // "weight_0", beside the list
  bool pickled = false;
  ScalarTypeCode dtype;
  // How the tensor lies in its file: a file may be the storage that several tensors share.
  std::vector<int64_t> sizes, strides;  // as many of the one as of the other, none negative
  int64_t storage_offset = 0;           // in elements, not negative
};

// By the user's name of the tensor. kInvalidArgument names the entry.
Result<std::unordered_map<std::string, PayloadEntry>> parse_payload_config(const std::string& json);

}  // namespace kiln
