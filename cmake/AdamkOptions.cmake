# Warnings, sanitizers, the packages every room may use, and how they are linked.
add_library(adamk_options INTERFACE)
target_compile_options(adamk_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside the standard library when -O2 inlines std::string and std::optional (GCC bugs 105651, 105562).
  target_compile_options(adamk_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
else()
  # libstdc++ 12's std::stable_sort uses get_temporary_buffer, deprecated in C++17; clang reports it at our call.
  target_compile_options(adamk_options INTERFACE -Wno-deprecated-declarations)
endif()
if(ADAMK_SANITIZE)
  target_compile_options(adamk_options INTERFACE -fsanitize=${ADAMK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(adamk_options INTERFACE -fsanitize=${ADAMK_SANITIZE})
endif()
if(ADAMK_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "ADAMK_FUZZ needs clang: it brings libFuzzer (preset fuzz)")
  endif()
  target_compile_options(adamk_options INTERFACE -fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping)
  target_link_options(adamk_options INTERFACE -fprofile-instr-generate)
endif()
if(ADAMK_PORTABLE)
  target_link_options(adamk_options INTERFACE -static-libstdc++ -static-libgcc)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tl-expected REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_library(ADAMK_YAML_CPP yaml-cpp REQUIRED)
find_library(ADAMK_SQLITECPP SQLiteCpp REQUIRED)
find_library(ADAMK_SQLITE3 sqlite3 REQUIRED)

# fmt header-only: the portable binaries must not need the distribution's libfmt.
target_link_libraries(adamk_options INTERFACE fmt::fmt-header-only nlohmann_json::nlohmann_json tl::expected
  Threads::Threads ${CMAKE_DL_LIBS})
add_library(adamk_yaml INTERFACE)
target_link_libraries(adamk_yaml INTERFACE ${ADAMK_YAML_CPP})
add_library(adamk_sqlite INTERFACE)
target_link_libraries(adamk_sqlite INTERFACE ${ADAMK_SQLITECPP} ${ADAMK_SQLITE3})
