# How Kiln's own targets are made: one place for warnings, sanitizers, linker and compiler cache.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

add_library(kiln_options INTERFACE)
target_compile_options(kiln_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Wimplicit-fallthrough -Werror=switch -Werror=return-type)
if(KILN_WERROR)
  target_compile_options(kiln_options INTERFACE -Werror)
endif()
target_include_directories(kiln_options INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(kiln_options INTERFACE fmt::fmt Threads::Threads)

if(KILN_SANITIZE)
  add_compile_options(-fsanitize=${KILN_SANITIZE} -fno-omit-frame-pointer -g1
    -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KILN_SANITIZE})
endif()

# Precompiled standard headers (KILN_PCH), one set for libraries and one for tests, since the flags
# must be the same: half of a small source's compile is its headers. Off by default, so that every
# source is also compiled with its own includes alone, and because ccache keeps less with them.
function(kiln_precompiled_headers name)
  if(KILN_PCH)
    target_precompile_headers(${name} REUSE_FROM ${ARGV1})
  endif()
endfunction()
if(KILN_PCH)
  if(CCACHE_PROGRAM)
    # The sloppiness and the flag are what ccache asks for before it caches what uses them; the base
    # directory makes one clone's objects good for the next.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
    add_compile_options(-fpch-preprocess)
  endif()
  add_library(kiln_headers OBJECT ${PROJECT_SOURCE_DIR}/cmake/headers.cc)
  target_link_libraries(kiln_headers PRIVATE kiln_options)
  target_precompile_headers(kiln_headers PRIVATE ${PROJECT_SOURCE_DIR}/cmake/headers.h)
endif()

# Sources compiled together (KILN_UNITY): those of one folder, kiln_unity_size at a time, since what they
# include costs more than what they say. A name in an unnamed namespace is then known to the whole
# folder, so it must be the only one of its kind there. A source with the property
# SKIP_UNITY_BUILD_INCLUSION compiles alone. Off by default: then every source compiles alone, and a
# change costs that one. (CMake's own unity builds include by absolute paths, so that a
# compiler cache has nothing for the next clone.)
set(kiln_unity_size 8)
function(kiln_unity name)
  if(NOT KILN_UNITY)
    return()
  endif()
  get_target_property(sources ${name} SOURCES)
  set(kept)
  set(units)
  foreach(source IN LISTS sources)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${source} made)
    if(alone OR made OR NOT source MATCHES "\\.cc$")
      list(APPEND kept ${source})
      continue()
    endif()
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET source PARENT_PATH folder)
    string(REPLACE "/" "_" folder ${folder})
    list(APPEND of_${folder} ${source})
    list(LENGTH of_${folder} count)
    math(EXPR number "(${count} - 1) / ${kiln_unity_size}")
    list(APPEND units ${folder}_${number})
    string(APPEND text_of_${folder}_${number} "#include \"${source}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES units)
  foreach(unit IN LISTS units)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}.together/${unit}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_of_${unit}}" @ONLY)
    list(APPEND kept ${file})
  endforeach()
  set_property(TARGET ${name} PROPERTY SOURCES ${kept})
  # g++ warns of a header whose types have members from an unnamed namespace. It takes the sources for
  # headers here, since they are included.
  target_compile_options(${name} PRIVATE -Wno-subobject-linkage)
endfunction()

# kiln_library(name FOLDERS dir ... DEPS lib ... PRIVATE_DEPS lib ...): a static library of every .cc
# in this folder and in FOLDERS below it, except the *main.cc of its programs and EXCEPT's, which
# are another library's; or of SOURCES alone.
function(kiln_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;EXCEPT;FOLDERS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(NOT ARG_SOURCES)
    set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
    foreach(folder IN LISTS ARG_FOLDERS)
      list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
    endforeach()
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS ${patterns})
    list(FILTER ARG_SOURCES EXCLUDE REGEX "main\\.cc$")
    foreach(source IN LISTS ARG_EXCEPT)
      list(REMOVE_ITEM ARG_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    endforeach()
  endif()
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  set_property(GLOBAL APPEND PROPERTY KILN_LIBRARIES ${name})
  target_link_libraries(${name} PUBLIC kiln_options ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  kiln_precompiled_headers(${name} kiln_headers)
  kiln_unity(${name})
endfunction()

include(GNUInstallDirs)

# kiln_bundled(name): installed into bin/, as a component of its own, so that ops/bundle can take it
# alone. Libraries that lie in lib/ beside bin/ go before the system's: RPATH, because RUNPATH would
# not hold for what those libraries need themselves.
function(kiln_bundled name)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${name} ${ARGN})
endfunction()

# kiln_executable(name SOURCES main.cc DEPS lib ...): lands in bin/, and is installed.
function(kiln_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kiln_options ${ARG_DEPS})
  kiln_bundled(${name})
endfunction()

# kiln_documented(name): a manual page and completion for shells are made by the program itself, and
# installed with it.
function(kiln_documented name)
  set(share ${CMAKE_BINARY_DIR}/share)
  set(man ${share}/man/man1/${name}.1)
  set(bash ${share}/bash-completion/completions/${name})
  set(zsh ${share}/zsh/site-functions/_${name})
  set(fish ${share}/fish/vendor_completions.d/${name}.fish)
  foreach(file ${man}.gz ${bash} ${zsh} ${fish})
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY ${folder})
    file(RELATIVE_PATH place ${share} ${folder})
    install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DATADIR}/${place} COMPONENT ${name})
  endforeach()
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND $<TARGET_FILE:${name}> --man > ${man}
    COMMAND gzip --best --force --no-name ${man}
    COMMAND $<TARGET_FILE:${name}> --completion bash > ${bash}
    COMMAND $<TARGET_FILE:${name}> --completion zsh > ${zsh}
    COMMAND $<TARGET_FILE:${name}> --completion fish > ${fish} VERBATIM)
endfunction()

# kiln_test_sources(name): how the sources of a test program are compiled. What is tested is in the
# libraries; optimising its tests would cost a third of their compile.
function(kiln_test_sources name)
  target_compile_options(${name} PRIVATE -O0)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  kiln_precompiled_headers(${name} kiln_test_headers)
  kiln_unity(${name})
endfunction()
if(KILN_PCH AND KILN_TESTS)
  add_executable(kiln_test_headers EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/headers.cc)
  target_compile_options(kiln_test_headers PRIVATE -O0)
  target_link_libraries(kiln_test_headers PRIVATE kiln_options GTest::gtest)
  target_precompile_headers(kiln_test_headers PRIVATE ${PROJECT_SOURCE_DIR}/cmake/headers.h
    <gtest/gtest.h>)
endif()

# What ctest -j counts are halves of cores: a test that computes takes one core, one that mostly waits for
# processes, timers and disks a half of one (the default).
set(kiln_one_core 2)

# kiln_test(dir DEPS lib ...): every *_test.cc in tests/<dir> becomes one test program, so that a
# new test file needs no change to a list. EXCEPT leaves some to another program, a kiln_test of the
# same dir with SOURCES and a NAME. FAST: its tests start no process and no compiler, and take
# milliseconds each; they have the label `fast`, and `fast_tests` builds all such programs.
function(kiln_test dir)
  cmake_parse_arguments(ARG "FAST" "NAME" "SOURCES;EXCEPT;DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${dir}/*_test.cc)
  foreach(source IN LISTS ARG_EXCEPT)
    list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/tests/${dir}/${source})
  endforeach()
  if(ARG_SOURCES)
    set(sources ${ARG_SOURCES})
  endif()
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name ${dir})
  if(ARG_NAME)
    set(name ${ARG_NAME})
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE kiln_options ${ARG_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE
    KILN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" KILN_BINARY_DIR="${CMAKE_BINARY_DIR}"
    KILN_GRAPHS_DIR="${PROJECT_SOURCE_DIR}/tests/graphs")
  kiln_test_sources(${name}_test)
  set(labels)
  if(ARG_FAST)
    set(labels LABELS fast)
    add_dependencies(fast_tests ${name}_test)
  endif()
  gtest_discover_tests(${name}_test TEST_PREFIX "${dir}: " DISCOVERY_TIMEOUT 600
    PROPERTIES TIMEOUT 600 PROCESSORS ${kiln_one_core} ${labels})
endfunction()
