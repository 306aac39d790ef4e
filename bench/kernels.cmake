# Matrix products and attention of the shipped model sizes; included by bench/CMakeLists.txt.
add_executable(bench_kernels ${CMAKE_CURRENT_LIST_DIR}/kernels.cc
  ${CMAKE_CURRENT_LIST_DIR}/kernel_products.cc ${CMAKE_CURRENT_LIST_DIR}/onednn_f32.cc
  ${CMAKE_CURRENT_LIST_DIR}/host_fma_rate.cc)
set_target_properties(bench_kernels PROPERTIES
  OUTPUT_NAME kernels RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
target_link_libraries(bench_kernels PRIVATE
  coppice_kernels coppice_products coppice::dnnl coppice::hwy OpenMP::OpenMP_CXX coppice_cuda_build
  coppice_cuda_loader coppice_base coppice_settings Boost::program_options)
target_include_directories(bench_kernels PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
coppice_together(bench_kernels)
