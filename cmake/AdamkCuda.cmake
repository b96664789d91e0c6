# Headers of the CUDA toolkit only: libcuda, NVRTC and CUPTI are opened at run time (libruntime, libcodegen, libprofile).
# With ADAMK_IGNORE_TOOLKIT set in the environment only what scripts/setup took from the Python wheels is looked at, so
# that a machine with a toolkit can try the path of a machine without one.
set(adamk_wheels ${CMAKE_SOURCE_DIR}/build/cuda)
if(DEFINED ENV{ADAMK_IGNORE_TOOLKIT})
  set(adamk_cuda_homes ${adamk_wheels})
  set(adamk_cuda_search NO_DEFAULT_PATH)
else()
  set(adamk_cuda_homes ${ADAMK_CUDA_HOME} $ENV{ADAMK_CUDA_HOME} $ENV{CUDA_HOME} /usr/local/cuda ${adamk_wheels})
  set(adamk_cuda_search)
endif()
set(adamk_cuda_includes)
foreach(home IN LISTS adamk_cuda_homes)
  list(APPEND adamk_cuda_includes ${home}/include ${home}/targets/x86_64-linux/include ${home}/extras/CUPTI/include)
endforeach()

find_path(ADAMK_CUDA_INCLUDE cuda.h HINTS ${adamk_cuda_includes} ${adamk_cuda_search})
find_path(ADAMK_NVRTC_INCLUDE nvrtc.h HINTS ${ADAMK_CUDA_INCLUDE} ${adamk_cuda_includes} ${adamk_cuda_search})
find_path(ADAMK_CUPTI_INCLUDE cupti_range_profiler.h HINTS ${ADAMK_CUDA_INCLUDE} ${adamk_cuda_includes} ${adamk_cuda_search})
if(NOT ADAMK_CUDA_INCLUDE OR NOT ADAMK_NVRTC_INCLUDE OR NOT ADAMK_CUPTI_INCLUDE)
  message(FATAL_ERROR "CUDA 13 headers (cuda.h, nvrtc.h, cupti_range_profiler.h) not found. Run scripts/setup, which takes "
    "them from the nvidia-cuda-* Python wheels, or pass -DADAMK_CUDA_HOME=<toolkit>.")
endif()
file(STRINGS ${ADAMK_CUDA_INCLUDE}/cuda.h adamk_cuda_version REGEX "#define CUDA_VERSION [0-9]+")
string(REGEX MATCH "[0-9]+" adamk_cuda_version "${adamk_cuda_version}")
if(adamk_cuda_version LESS 13000)
  message(FATAL_ERROR "${ADAMK_CUDA_INCLUDE}/cuda.h is CUDA ${adamk_cuda_version}; adamk needs 13000 or later. Point "
    "ADAMK_CUDA_HOME at a CUDA 13 toolkit, or unset it and run scripts/setup.")
endif()

add_library(adamk_cuda_headers INTERFACE)
target_include_directories(adamk_cuda_headers SYSTEM INTERFACE
  ${ADAMK_CUDA_INCLUDE} ${ADAMK_NVRTC_INCLUDE} ${ADAMK_CUPTI_INCLUDE})
# Where the libraries lie that belong to these headers; compiled in as one of the places looked at when they are opened.
get_filename_component(ADAMK_CUDA_FOUND_HOME ${ADAMK_CUDA_INCLUDE} DIRECTORY)
