# Where a build finds the shipped targets; an installed binary looks beside itself first (src/target_search.cpp).
target_compile_definitions(adamk_dag PRIVATE ADAMK_EXAMPLES_DIR="${CMAKE_SOURCE_DIR}/examples")
if(ADAMK_NIGHTLY)
  # Ten times the mutants, each looked at from every side, and eight plans of every shipped model and target.
  add_test(NAME dag_mutants COMMAND test_dag --gtest_brief=1 --gtest_filter=Mutation*:AcceptedPlans*)
  set_tests_properties(dag_mutants PROPERTIES LABELS "unit;nightly" TIMEOUT 7200 ENVIRONMENT ADAMK_NIGHTLY=1)
endif()
