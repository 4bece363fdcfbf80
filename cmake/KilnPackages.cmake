# Debian packages, made by `cpack -G DEB` (ops/package): kiln (client and coordinator), kiln-worker
# and libkiln-dev. What each depends on is read from its programs.
set(units /usr/lib/systemd/system)  # whatever the prefix: systemd looks nowhere else
install(FILES ${PROJECT_SOURCE_DIR}/ops/systemd/kiln-coordinator.service
  DESTINATION ${units} COMPONENT packaged-coordinator EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/ops/systemd/kiln-worker@.service
  DESTINATION ${units} COMPONENT packaged-worker EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/ops/systemd/confined.conf
  DESTINATION /usr/share/doc/kiln-worker COMPONENT packaged-worker EXCLUDE_FROM_ALL)
foreach(package kiln kiln-worker libkiln-dev)
  install(FILES ${PROJECT_SOURCE_DIR}/ops/debian.copyright RENAME copyright
    DESTINATION /usr/share/doc/${package} COMPONENT packaged-${package} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kiln)
set(CPACK_PACKAGE_VENDOR Kiln)
set(CPACK_PACKAGE_CONTACT "the maintainers of Kiln <maintainers@kiln.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENTS_ALL kiln kiln-coordinator kiln-worker kiln-runner development
  packaged-coordinator packaged-worker packaged-kiln packaged-kiln-worker packaged-libkiln-dev)

set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME kiln)
set(CPACK_DEBIAN_CLIENT_DESCRIPTION "compiles and tunes tensor programs once for a whole fleet
 The client, for replicas, people and CI, and the coordinator, which answers
 from a cache of tuned kernels and has workers tune what is not there.")
set(CPACK_DEBIAN_CLIENT_PACKAGE_SUGGESTS kiln-worker)
set(CPACK_DEBIAN_WORKER_PACKAGE_NAME kiln-worker)
set(CPACK_DEBIAN_WORKER_DESCRIPTION "tunes tensor programs for a Kiln coordinator
 Compiles candidates, checks each against a reference, and times the right
 ones on this machine's CPU, or a GPU of NVIDIA's (with its driver and NVRTC).")
set(CPACK_DEBIAN_WORKER_PACKAGE_DEPENDS "g++")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libkiln-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libexpected-dev")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "Kiln's client as a library, for C and C++
 libkiln.so with kiln.h (C11), libkiln_client.so with client.h (C++20), and
 their CMake package.")

include(CPack)
cpack_add_component(kiln GROUP client)
cpack_add_component(kiln-coordinator GROUP client)
cpack_add_component(packaged-coordinator GROUP client)
cpack_add_component(packaged-kiln GROUP client)
cpack_add_component(kiln-worker GROUP worker)
cpack_add_component(kiln-runner GROUP worker)
cpack_add_component(packaged-worker GROUP worker)
cpack_add_component(packaged-kiln-worker GROUP worker)
cpack_add_component(development GROUP development)
cpack_add_component(packaged-libkiln-dev GROUP development)
