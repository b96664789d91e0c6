// A kernel is run only with a certificate that its plan is sound (libdag's validator issues it; here it is only read).
#pragma once

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/runtime/recipe.h"

namespace adamk {

/// Fails (bad_input) unless the certificate says yes, for this plan and deployment, by a validator that is not too old.
Result<void> check_certificate(const JsonView& certificate, const Recipe& recipe);

}  // namespace adamk
