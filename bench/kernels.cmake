# Matrix products and attention of the shipped model sizes; included by bench/CMakeLists.txt.
add_executable(bench_kernels ${CMAKE_CURRENT_LIST_DIR}/kernels.cc)
set_target_properties(bench_kernels PROPERTIES
  OUTPUT_NAME kernels RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
target_link_libraries(bench_kernels PRIVATE
  coppice_kernels coppice_cuda_build coppice_cuda_loader coppice_base coppice_settings)
