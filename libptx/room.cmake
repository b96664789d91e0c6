# Lane loops are written for the vectoriser. Products and sums are rounded apart, as PTX says, but where it says fma.
set(lane_flags -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
set_source_files_properties(${root}/src/lane_ops_plain.cpp PROPERTIES COMPILE_OPTIONS "${lane_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND lane_flags -mavx2 -mfma -mf16c)
endif()
set_source_files_properties(${root}/src/lane_ops_avx2.cpp PROPERTIES COMPILE_OPTIONS "${lane_flags}")
