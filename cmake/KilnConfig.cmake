# find_package(Kiln): Kiln::client, the library of client/client.h; Kiln::kiln, that of client/kiln.h.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(tl-expected)
include(${CMAKE_CURRENT_LIST_DIR}/KilnTargets.cmake)
