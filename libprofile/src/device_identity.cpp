#include "adamk/codegen/kernel.h"
#include "adamk/profile/device_evaluator.h"

namespace adamk {

Result<DeviceIdentity> device_identity(const DeviceInfo& info) {
  DeviceIdentity identity;
  identity.name = info.name;
  identity.sm = info.sm;
  identity.sms = info.sms;
  identity.driver = fmt::format("{}.{}", info.driver_version / 1000, info.driver_version % 1000 / 10);
  identity.memory_bytes = info.memory_bytes;
  ADAMK_TRY(const std::string toolkit, nvrtc_version());
  identity.toolkit = toolkit.substr(0, toolkit.find(' '));
  return identity;
}

}  // namespace adamk
