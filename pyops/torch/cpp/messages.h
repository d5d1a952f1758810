/* Values in messages, as Python shows them. */
#pragma once
#include <ATen/core/Tensor.h>
#include <string>
#include <vector>

#include "operator.h"

namespace pyops_torch {

using at::Tensor;
using Lengths = std::vector<int64_t>;

std::string text_of(Wide value) {
  if (value < 0) return "-" + text_of(-value);
  std::string digits;
  for (; digits.empty() || value; value /= 10) {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
  }
  return digits;
}

std::string tuple(const std::vector<std::string> &items) {
  std::string text;
  for (const std::string &item : items) text += (text.empty() ? "" : ", ") + item;
  return "(" + text + (items.size() == 1 ? ",)" : ")");
}

std::string show(c10::IntArrayRef shape) {
  std::vector<std::string> items;
  for (int64_t length : shape) items.push_back(std::to_string(length));
  return tuple(items);
}

std::string show(c10::ScalarType type) {
  switch (type) {
    case at::kFloat: return "float32";
    case at::kDouble: return "float64";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    case at::kInt: return "int32";
    case at::kLong: return "int64";
    default: return c10::toString(type);
  }
}

}  // namespace pyops_torch
