# Headers of the CUDA toolkit only: libcuda, NVRTC and CUPTI are opened at run time (libruntime, libcodegen, libprofile).
find_path(ADAMK_CUDA_INCLUDE cuda.h
  HINTS ${ADAMK_CUDA_HOME}/include $ENV{CUDA_HOME}/include ${CMAKE_SOURCE_DIR}/build/cuda/include /usr/local/cuda/include)
find_path(ADAMK_CUPTI_INCLUDE cupti_range_profiler.h
  HINTS ${ADAMK_CUDA_HOME}/include $ENV{CUDA_HOME}/include ${CMAKE_SOURCE_DIR}/build/cuda/include
        /usr/local/cuda/include /usr/local/cuda/extras/CUPTI/include)
if(NOT ADAMK_CUDA_INCLUDE OR NOT ADAMK_CUPTI_INCLUDE)
  message(FATAL_ERROR "CUDA 13 headers (cuda.h, nvrtc.h, cupti_range_profiler.h) not found. Run scripts/setup, which takes "
    "them from the nvidia-cuda-* Python wheels, or pass -DADAMK_CUDA_HOME=<toolkit>.")
endif()
add_library(adamk_cuda_headers INTERFACE)
target_include_directories(adamk_cuda_headers SYSTEM INTERFACE ${ADAMK_CUDA_INCLUDE} ${ADAMK_CUPTI_INCLUDE})
get_filename_component(ADAMK_CUDA_FOUND_HOME ${ADAMK_CUDA_INCLUDE} DIRECTORY)
