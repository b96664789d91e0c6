# Where a build finds the shipped targets; an installed binary looks beside itself first (src/target_search.cpp).
target_compile_definitions(adamk_dag PRIVATE ADAMK_EXAMPLES_DIR="${CMAKE_SOURCE_DIR}/examples")
