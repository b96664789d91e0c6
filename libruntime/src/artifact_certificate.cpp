#include "artifact_certificate.h"

#include "artifact_format.h"

namespace adamk {
namespace {

Result<void> same(const JsonView& certificate, std::string_view key, const std::string& of_recipe) {
  ADAMK_TRY(const JsonView view, certificate.at(key));
  ADAMK_TRY(const std::string text, view.text());
  if (text == of_recipe) return {};
  return tl::unexpected(view.error(
      Errc::bad_input, fmt::format("the certificate is for '{}', the recipe for '{}'; export again", text, of_recipe)));
}

}  // namespace

Result<void> check_certificate(const JsonView& certificate, const Recipe& recipe) {
  ADAMK_CHECK(expect_format(certificate, "adamk.certificate", 2));
  ADAMK_TRY(const JsonView ok, certificate.at("ok"));
  ADAMK_TRY(const bool says_yes, ok.boolean());
  if (!says_yes) return tl::unexpected(ok.error(Errc::bad_input, "the validator refuted this plan; it is not run"));
  ADAMK_TRY(const JsonView version, certificate.at("validator_version"));
  ADAMK_CHECK(version.integer(artifact_format::oldest_validator, 1 << 20));
  ADAMK_CHECK(same(certificate, "plan_hash", recipe.plan_hash));
  return same(certificate, "deployment_key", recipe.deployment_key);
}

}  // namespace adamk
