# cmake -DOUTPUT=FILE -DSOURCE=FOLDER -P commit.cmake: FILE defines the commit of FOLDER, "unknown"
# where there is no repository, with a "+" behind it when files differ from it.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty=+
  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit unknown)
endif()
set(text "namespace kiln {
extern const char kCommit[];
const char kCommit[] = \"${commit}\";
}  // namespace kiln
")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
