#include "adamk/profile/random_decoder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

namespace adamk {
namespace {

std::vector<std::byte> random_values(std::int64_t bytes, WeightsFormat format, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const bool bf16 = format == WeightsFormat::bf16;
  const std::uint64_t lowest = bf16 ? 0x3c00 : 0x2000, span = bf16 ? 0x1ff : 0xfff;
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  for (std::size_t at = 0; at + 1 < out.size(); at += 2) {
    const std::uint64_t r = random();
    const auto value = static_cast<std::uint16_t>(lowest + (r & span) + ((r >> 20 & 1) << 15));
    std::memcpy(out.data() + at, &value, 2);
  }
  return out;
}

/// Random bytes on the device, a piece of at most 16 MB again and again.
Result<DeviceAddress> upload_random(Device& device, std::int64_t bytes, WeightsFormat format, std::uint64_t seed) {
  ADAMK_TRY(const DeviceAddress address, device.allocate(bytes));
  const std::int64_t piece = std::min<std::int64_t>(bytes, std::int64_t{16} << 20);
  const std::vector<std::byte> values = random_values(piece, format, seed);
  for (std::int64_t at = 0; at < bytes; at += piece)
    ADAMK_CHECK(device.upload(address + static_cast<DeviceAddress>(at),
                              std::span(values).first(static_cast<std::size_t>(std::min(piece, bytes - at)))));
  return address;
}

}  // namespace

Result<Decoder> random_decoder(Device& device, const Recipe& recipe, const Kernel& kernel, WeightsFormat format,
                               std::uint64_t seed) {
  auto weights = std::make_shared<Decoder::DeviceWeights>();
  weights->device = &device;
  ADAMK_TRY(weights->packed, upload_random(device, recipe.packed_bytes, format, seed));
  ADAMK_TRY(weights->small_tensors, upload_random(device, recipe.small_bytes, format, seed + 1));
  ADAMK_TRY(weights->embedding, upload_random(device, recipe.embedding_bytes, format, seed + 2));
  const std::vector<std::byte> image = kernel.image();
  ADAMK_TRY(Decoder decoder, Decoder::create(device, recipe, image, weights));
  ADAMK_CHECK(decoder.write_kv(random_values(recipe.kv_bytes, format, seed + 3)));
  return decoder;
}

}  // namespace adamk
