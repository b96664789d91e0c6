include(AdamkEmbed)
adamk_embed(adamk_codegen
  ${CMAKE_SOURCE_DIR}/libruntime/include/adamk/runtime/kernel_params.h
  ${CMAKE_SOURCE_DIR}/libcodegen/device/primitives.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/block.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/exchange.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/consumer.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/attention.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/storer.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/launcher.cuh)
# NVRTC is looked for where the headers were found, among other places (src/nvrtc.cpp).
target_compile_definitions(adamk_codegen PRIVATE ADAMK_CUDA_FOUND_HOME="${ADAMK_CUDA_FOUND_HOME}")
