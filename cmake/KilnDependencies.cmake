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
pkg_check_modules(libcurl REQUIRED IMPORTED_TARGET libcurl>=7.85)
pkg_check_modules(libpq REQUIRED IMPORTED_TARGET libpq>=14)  # pipeline mode
pkg_check_modules(libsodium REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
pkg_check_modules(protobuf REQUIRED IMPORTED_TARGET protobuf-lite>=3.21)  # its wire format
find_path(ONNX_HEADERS onnx/onnx_pb.h REQUIRED)  # libonnx-dev: the numbers of ONNX's fields
pkg_check_modules(libseccomp REQUIRED IMPORTED_TARGET libseccomp)
if(KILN_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
