include(AdamkEmbed)
adamk_embed(adamk_codegen
  ${CMAKE_SOURCE_DIR}/libruntime/include/adamk/runtime/kernel_params.h
  ${CMAKE_SOURCE_DIR}/libcodegen/device/primitives.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/block.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/exchange.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/consumer.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/attention.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/storer.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/launcher.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/clock.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/stamps.cuh
  ${CMAKE_SOURCE_DIR}/libcodegen/device/timeline.cuh)
# NVRTC is looked for where the headers were found, among other places (src/nvrtc.cpp).
target_compile_definitions(adamk_codegen PRIVATE ADAMK_CUDA_FOUND_HOME="${ADAMK_CUDA_FOUND_HOME}")

# The synchronisation protocols as models for spin; each model names the device code that it stands for.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
add_test(NAME protocol_models COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/libcodegen/protocol/check.py)
set_tests_properties(protocol_models PROPERTIES LABELS protocol TIMEOUT 300 SKIP_RETURN_CODE 77)
if(ADAMK_NIGHTLY)
  add_test(NAME protocol_models_long COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/libcodegen/protocol/check.py --nightly)
  set_tests_properties(protocol_models_long PROPERTIES LABELS "protocol;nightly" TIMEOUT 7200 SKIP_RETURN_CODE 77)
endif()
