#include <algorithm>
#include <cmath>

#include "adamk/base/json.h"

namespace adamk {
namespace {

std::string_view type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "true or false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return std::isfinite(value.get<double>()) ? "a number" : "not finite";
    default:
      return "binary";
  }
}

std::string member_path(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

}  // namespace

JsonView::JsonView(const Json& value, std::string file, std::string path)
    : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

Error JsonView::error(Errc code, std::string_view message) const {
  if (path_.empty()) return {code, fmt::format("{}: {}", file_, message)};
  return {code, fmt::format("{}: {}: {}", file_, path_, message)};
}

Result<JsonView> JsonView::at(std::string_view key) const {
  if (!value_->is_object()) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("must be an object, is {}", type_name(*value_))));
  }
  const auto found = value_->find(key);
  if (found == value_->end()) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("the key '{}' is missing", key)));
  }
  return JsonView(*found, file_, member_path(path_, key));
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!value_->is_object()) return std::nullopt;
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonView(*found, file_, member_path(path_, key));
}

bool JsonView::has(std::string_view key) const { return value_->is_object() && value_->contains(key); }

Result<std::vector<JsonView>> JsonView::items() const {
  if (!value_->is_array()) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("must be a list, is {}", type_name(*value_))));
  }
  std::vector<JsonView> views;
  views.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    views.emplace_back((*value_)[i], file_, fmt::format("{}[{}]", path_, i));
  }
  return views;
}

Result<void> JsonView::only_keys(std::initializer_list<std::string_view> allowed) const {
  if (!value_->is_object()) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("must be an object, is {}", type_name(*value_))));
  }
  for (const auto& [key, member] : value_->items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      return tl::unexpected(
          error(Errc::bad_input, fmt::format("unknown key '{}'; known are {}", key, fmt::join(allowed, ", "))));
    }
  }
  return {};
}

Result<std::int64_t> JsonView::integer(std::int64_t low, std::int64_t high) const {
  const auto out_of_range = [&](const std::string& shown) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("{} is outside {} to {}", shown, low, high)));
  };
  std::int64_t number = 0;
  if (value_->is_number_unsigned()) {
    const auto large = value_->get<std::uint64_t>();
    if (large > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return out_of_range(std::to_string(large));
    }
    number = static_cast<std::int64_t>(large);
  } else if (value_->is_number_integer()) {
    number = value_->get<std::int64_t>();
  } else if (value_->is_number_float()) {
    const double real = value_->get<double>();
    if (!std::isfinite(real) || std::trunc(real) != real) {
      return tl::unexpected(error(Errc::bad_input, fmt::format("must be an integer, is {}", real)));
    }
    if (real < -0x1p63 || real >= 0x1p63) return out_of_range(fmt::format("{}", real));
    number = static_cast<std::int64_t>(real);
  } else {
    return tl::unexpected(error(Errc::bad_input, fmt::format("must be an integer, is {}", type_name(*value_))));
  }
  if (number < low || number > high) return out_of_range(std::to_string(number));
  return number;
}

Result<double> JsonView::number(double low, double high) const {
  if (!value_->is_number()) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("must be a number, is {}", type_name(*value_))));
  }
  const double real = value_->get<double>();
  if (!std::isfinite(real)) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("must be a finite number, is {}", real)));
  }
  if (real < low || real > high) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("{} is outside {} to {}", real, low, high)));
  }
  return real;
}

Result<std::string> JsonView::text() const {
  if (!value_->is_string()) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("must be a string, is {}", type_name(*value_))));
  }
  return value_->get<std::string>();
}

Result<bool> JsonView::boolean() const {
  if (!value_->is_boolean()) {
    return tl::unexpected(error(Errc::bad_input, fmt::format("must be true or false, is {}", type_name(*value_))));
  }
  return value_->get<bool>();
}

Result<void> expect_format(const JsonView& root, std::string_view format, int version) {
  ADAMK_TRY(const JsonView stated_format, root.at("format"));
  ADAMK_TRY(const std::string name, stated_format.text());
  if (name != format) {
    return tl::unexpected(stated_format.error(
        Errc::bad_input, fmt::format("this is a file of format '{}', expected '{}'", name, format)));
  }
  ADAMK_TRY(const JsonView stated_version, root.at("version"));
  ADAMK_TRY(const std::int64_t number, stated_version.integer());
  if (number == version) return {};
  return tl::unexpected(stated_version.error(
      Errc::unsupported, fmt::format("{} version {} is {} than this program reads ({}); {}", format, number,
                                     number > version ? "newer" : "older", version,
                                     number > version ? "use a newer adamk" : "make the file again with this adamk")));
}

}  // namespace adamk
