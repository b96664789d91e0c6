#include "adamk/base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>

#include "adamk/base/json.h"

namespace adamk {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors holds little-endian data, used in place");

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's own limit
constexpr std::string_view index_name = "model.safetensors.index.json";
constexpr std::string_view single_name = "model.safetensors";

/// Bytes of one element, or 0 for a type the format does not know (or packs below a byte).
std::int64_t element_size(std::string_view dtype) {
  struct Entry {
    std::string_view name;
    std::int64_t bytes;
  };
  constexpr Entry entries[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
                               {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
                               {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};
  const auto* entry =
      std::find_if(std::begin(entries), std::end(entries), [&](const Entry& e) { return e.name == dtype; });
  return entry == std::end(entries) ? 0 : entry->bytes;
}

/// Bytes of a tensor, or nothing on overflow.
std::optional<std::int64_t> byte_count(std::span<const std::int64_t> shape, std::int64_t element) {
  std::int64_t bytes = element;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

struct Entry {
  std::string name;
  Tensor tensor;
  std::int64_t begin = 0, end = 0;
};

/// One tensor's header entry, checked on its own against the `data` section.
Result<Entry> read_entry(const JsonView& view, std::string name, std::span<const std::byte> data) {
  Entry entry;
  entry.name = std::move(name);
  ADAMK_CHECK(view.only_keys({"dtype", "shape", "data_offsets"}));
  ADAMK_TRY(const JsonView dtype, view.at("dtype"));
  ADAMK_TRY(entry.tensor.dtype, dtype.text());
  const std::int64_t element = element_size(entry.tensor.dtype);
  if (element == 0) {
    return tl::unexpected(dtype.error(Errc::unsupported, fmt::format("unknown type '{}'", entry.tensor.dtype)));
  }
  ADAMK_TRY(const JsonView shape, view.at("shape"));
  ADAMK_TRY(const std::vector<JsonView> extents, shape.items());
  for (const JsonView& extent : extents) {
    ADAMK_TRY(entry.tensor.shape.emplace_back(), extent.integer(0));
  }
  ADAMK_TRY(const JsonView offsets, view.at("data_offsets"));
  ADAMK_TRY(const std::vector<JsonView> pair, offsets.items());
  if (pair.size() != 2) return tl::unexpected(offsets.error(Errc::bad_input, "must hold two numbers"));
  ADAMK_TRY(entry.begin, pair[0].integer(0));
  ADAMK_TRY(entry.end, pair[1].integer(0));
  if (entry.begin > entry.end || static_cast<std::uint64_t>(entry.end) > data.size()) {
    return tl::unexpected(offsets.error(Errc::bad_input, fmt::format("[{}, {}] is not inside the {} bytes of data",
                                                                     entry.begin, entry.end, data.size())));
  }
  const std::optional<std::int64_t> bytes = byte_count(entry.tensor.shape, element);
  if (!bytes || *bytes != entry.end - entry.begin) {
    return tl::unexpected(
        offsets.error(Errc::bad_input, fmt::format("{} bytes, but shape [{}] of {} needs {}", entry.end - entry.begin,
                                                   fmt::join(entry.tensor.shape, ", "), entry.tensor.dtype,
                                                   bytes ? std::to_string(*bytes) : "more than 2^63")));
  }
  entry.tensor.data = data.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(*bytes));
  return entry;
}

/// The format asks that tensors cover the data section exactly: an overlap or a hole means a damaged file.
Result<void> check_coverage(std::vector<Entry>& entries, std::size_t data_bytes, const std::string& file) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t position = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].begin < position) {
      return fail(Errc::bad_input, "{}: {}: overlaps {}", file, entries[i].name, entries[i - 1].name);
    }
    if (entries[i].begin > position) {
      return fail(Errc::bad_input, "{}: bytes {} to {} of the data belong to no tensor", file, position,
                  entries[i].begin);
    }
    position = entries[i].end;
  }
  if (static_cast<std::uint64_t>(position) != data_bytes) {
    return fail(Errc::bad_input, "{}: bytes {} to {} of the data belong to no tensor", file, position, data_bytes);
  }
  return {};
}

Result<std::vector<Entry>> read_header(std::span<const std::byte> bytes, const std::string& file) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) {
    return fail(Errc::bad_input, "{}: {} bytes are too few for a safetensors file", file, bytes.size());
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  bytes = bytes.subspan(sizeof header_bytes);
  if (header_bytes > max_header_bytes) {
    return fail(Errc::bad_input, "{}: states a header of {} bytes, more than the format's {}: not a safetensors file",
                file, header_bytes, max_header_bytes);
  }
  if (header_bytes > bytes.size()) {
    return fail(Errc::bad_input, "{}: states a header of {} bytes but only {} follow: the file is cut short", file,
                header_bytes, bytes.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(header_bytes));
  ADAMK_TRY(const Json header, parse_json(text, file));
  if (!header.is_object()) return fail(Errc::bad_input, "{}: the header must be a JSON object", file);
  const std::span<const std::byte> data = bytes.subspan(text.size());

  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;  // free text for people
    ADAMK_TRY(entries.emplace_back(), read_entry(JsonView(value, file, name), name, data));
  }
  ADAMK_CHECK(check_coverage(entries, data.size(), file));
  return entries;
}

/// Shard file -> the tensors the index says it holds.
Result<std::map<std::string, std::set<std::string>>> read_index(const std::filesystem::path& path) {
  ADAMK_TRY(const Json document, read_document(path, max_header_bytes));
  const JsonView root(document, path.string());
  ADAMK_TRY(const JsonView weight_map, root.at("weight_map"));
  if (!weight_map.value().is_object() || weight_map.value().empty()) {
    return tl::unexpected(weight_map.error(Errc::bad_input, "must be an object that names at least one tensor"));
  }
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, value] : weight_map.value().items()) {
    const JsonView view(value, path.string(), "weight_map." + tensor);
    ADAMK_TRY(const std::string shard, view.text());
    // Only a plain name: a path could lead out of the folder.
    const bool plain = !shard.empty() && shard != "." && shard != ".." && shard.find('/') == std::string::npos &&
                       shard.find('\0') == std::string::npos;
    if (!plain) {
      return tl::unexpected(view.error(Errc::bad_input, fmt::format("'{}' is not a file name in this folder", shard)));
    }
    shards[shard].insert(tensor);
  }
  return shards;
}

}  // namespace

namespace {

Result<void> add_file(const std::filesystem::path& path, const std::set<std::string>* expected,
                      std::vector<MappedFile>& files, std::map<std::string, Tensor>& tensors) {
  ADAMK_TRY(MappedFile file, MappedFile::open(path));
  ADAMK_TRY(std::vector<Entry> entries, read_header(file.bytes(), path.string()));
  if (expected != nullptr) {
    std::set<std::string> present;
    for (const Entry& entry : entries) {
      present.insert(entry.name);
      if (!expected->contains(entry.name)) {
        return fail(Errc::bad_input, "{}: holds the tensor '{}', which {} does not place there", path.string(),
                    entry.name, index_name);
      }
    }
    for (const std::string& name : *expected) {
      if (!present.contains(name)) {
        return fail(Errc::bad_input, "{}: the tensor '{}' is missing, though {} places it there", path.string(), name,
                    index_name);
      }
    }
  }
  for (Entry& entry : entries) tensors.emplace(std::move(entry.name), std::move(entry.tensor));
  files.push_back(std::move(file));  // moving keeps the mapping where it is
  return {};
}

}  // namespace

Result<SafeTensors> SafeTensors::open(const std::filesystem::path& path) {
  SafeTensors result;
  std::error_code ignored;
  std::filesystem::path index;
  std::filesystem::path single = path;
  if (std::filesystem::is_directory(path, ignored)) {
    index = path / index_name;
    single = path / single_name;
    if (!std::filesystem::exists(index, ignored)) {
      index.clear();
      if (!std::filesystem::exists(single, ignored)) {
        return fail(Errc::io, "{}: holds neither {} nor {}", path.string(), single_name, index_name);
      }
    }
  } else if (path.string().ends_with(".index.json")) {
    index = path;
  }
  if (index.empty()) {
    ADAMK_CHECK(add_file(single, nullptr, result.files_, result.tensors_));
    return result;
  }
  ADAMK_TRY(const auto shards, read_index(index));
  for (const auto& [shard, names] : shards) {
    ADAMK_CHECK(add_file(index.parent_path() / shard, &names, result.files_, result.tensors_));
  }
  return result;
}

const Tensor* SafeTensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<void> write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors) {
  // Widest elements first, as the reference writer does: every tensor is then aligned to its element.
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return element_size(a->dtype) > element_size(b->dtype);
  });

  Json header = Json::object();
  std::uint64_t offset = 0;
  for (const TensorToWrite* tensor : order) {
    const std::int64_t element = element_size(tensor->dtype);
    if (element == 0)
      return fail(Errc::bad_input, "{}: {}: unknown type '{}'", path.string(), tensor->name, tensor->dtype);
    const bool negative =
        std::any_of(tensor->shape.begin(), tensor->shape.end(), [](auto extent) { return extent < 0; });
    const std::optional<std::int64_t> bytes = byte_count(tensor->shape, element);
    if (negative || !bytes || static_cast<std::uint64_t>(*bytes) != tensor->data.size()) {
      return fail(Errc::bad_input, "{}: {}: {} bytes do not fill shape [{}] of {}", path.string(), tensor->name,
                  tensor->data.size(), fmt::join(tensor->shape, ", "), tensor->dtype);
    }
    if (tensor->name == "__metadata__" || header.contains(tensor->name)) {
      return fail(Errc::bad_input, "{}: the tensor name '{}' is taken", path.string(), tensor->name);
    }
    header[tensor->name] = {
        {"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {offset, offset + tensor->data.size()}}};
    offset += tensor->data.size();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data starts aligned

  ADAMK_TRY(AtomicFile file, AtomicFile::create(path));
  const std::uint64_t header_bytes = text.size();
  ADAMK_CHECK(file.write(std::as_bytes(std::span(&header_bytes, 1))));
  ADAMK_CHECK(file.write(std::as_bytes(std::span(text.data(), text.size()))));
  for (const TensorToWrite* tensor : order) ADAMK_CHECK(file.write(tensor->data));
  return file.commit();
}

}  // namespace adamk
