#include "common/target_yaml.h"

#include "adamk/base/json.h"

namespace adamk {

Result<std::string> target_to_yaml(const Target& target, const std::string& comment) {
  std::string text = "# " + comment + "\n";
  // JSON's scalars are YAML's: strings in double quotes, numbers as they are.
  const Json document = target_to_json(target);
  for (const auto& [key, value] : document.items())
    text += fmt::format("{}: {}\n", key, value.dump(-1, ' ', true, Json::error_handler_t::replace));
  ADAMK_TRY(const Json read, parse_yaml(text, "target"));
  ADAMK_TRY(const Target same, target_from_json(JsonView(read, "target")));
  if (target_to_json(same) != document) return fail(Errc::bad_input, "target {}: does not read back as it was", target.name);
  return text;
}

}  // namespace adamk
