// How AWS's own tools are told of an S3 service, read so that what works for them works for Kiln:
// variables, and the files ~/.aws/credentials and ~/.aws/config.
//
//   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN    the credentials
//   AWS_PROFILE                                                    of the files; else "default"
//   AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE                   the files
//   AWS_REGION, AWS_DEFAULT_REGION                                 the region
//   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL                          a service that is not AWS
//   AWS_CA_BUNDLE                                                  whose certificates are good
//
// Roles of instances and containers are not asked for: that takes their metadata services.
#pragma once

#include <functional>
#include <string>

#include "cache/objects/object_store.h"

namespace kiln {

// `variable` reads the environment ("": not set), which only mains do. Without credentials in the
// variables, their file is read anew for each request, so that what is replaced there is used from
// then on. Fails nothing: where there are none, the first request says so.
S3Options s3_settings(const std::function<std::string(const char*)>& variable);

// The credentials of `profile` in the text of a credentials file. kPermissionDenied names the
// profile and the file when they are not there.
Result<S3Credentials> credentials_in(std::string_view text, const std::string& profile,
                                     const std::string& file);

}  // namespace kiln
