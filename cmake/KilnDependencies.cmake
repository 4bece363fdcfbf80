# Every library Kiln stands on, from Debian 12's own packages (ops/setup installs them).
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(SQLite3 REQUIRED)
pkg_check_modules(capnp REQUIRED IMPORTED_TARGET capnp>=0.9.2)
find_program(CAPNP_PROGRAM capnp REQUIRED)  # schema/CMakeLists.txt runs it on kiln.capnp
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson REQUIRED)
find_package(tl-expected REQUIRED)
pkg_check_modules(libzmq REQUIRED IMPORTED_TARGET libzmq>=4.3.3)
pkg_check_modules(libsodium REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
pkg_check_modules(libmicrohttpd REQUIRED IMPORTED_TARGET libmicrohttpd)
if(KILN_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# The CUDA target needs the toolkit's headers to build, and links nothing of it: the driver and NVRTC
# are opened at run time. Without them everything but that target is built.
find_program(NVCC_PROGRAM nvcc)
cmake_path(GET NVCC_PROGRAM PARENT_PATH nvcc_folder)
find_path(KILN_CUDA_INCLUDE_DIR cuda.h HINTS $ENV{CUDA_HOME}/include ${nvcc_folder}/../include
  PATHS /usr/local/cuda/include)
if(KILN_CUDA_INCLUDE_DIR AND EXISTS ${KILN_CUDA_INCLUDE_DIR}/nvrtc.h)
  set(KILN_HAVE_CUDA TRUE)
else()
  set(KILN_HAVE_CUDA FALSE)
  message(STATUS "No CUDA toolkit headers (set CUDA_HOME): the CUDA target is left out")
endif()
