#include "cache/objects/s3_settings.h"

#include <map>

#include "compiler_core/base/file.h"
#include "compiler_core/base/text.h"

namespace kiln {
namespace {

// The settings under "[section]" of a file as AWS writes them: NAME = VALUE, # and ; begin comments.
std::map<std::string, std::string> section_of(std::string_view text, std::string_view section) {
  std::map<std::string, std::string> settings;
  for (bool inside = false; !text.empty();) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    const size_t equals = line.find('=');
    if (line.front() == '[' && line.back() == ']')
      inside = trimmed(line.substr(1, line.size() - 2)) == section;
    else if (inside && equals != std::string_view::npos)
      settings[std::string(trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
  }
  return settings;
}

std::string first_of(const std::function<std::string(const char*)>& variable,
                     std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::string value = variable(name); !value.empty()) return value;
  return "";
}

}  // namespace

Result<S3Credentials> credentials_in(std::string_view text, const std::string& profile,
                                     const std::string& file) {
  auto settings = section_of(text, profile);
  S3Credentials credentials{settings["aws_access_key_id"], settings["aws_secret_access_key"],
                            settings["aws_session_token"]};
  if (credentials.access_key.empty() || credentials.secret_key.empty())
    return fail(Code::kPermissionDenied,
                "no aws_access_key_id and aws_secret_access_key under [" + profile + "] in " +
                    file +
                    ": write them there, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  return credentials;
}

S3Options s3_settings(const std::function<std::string(const char*)>& variable) {
  S3Options options;
  const std::string home = variable("HOME");
  std::string profile = first_of(variable, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  if (profile.empty()) profile = "default";
  std::string config = variable("AWS_CONFIG_FILE"), file = variable("AWS_SHARED_CREDENTIALS_FILE");
  if (config.empty()) config = home + "/.aws/config";
  if (file.empty()) file = home + "/.aws/credentials";
  auto configured = section_of(read_file(config).value_or(""),
                               profile == "default" ? profile : "profile " + profile);

  const S3Credentials given{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                            variable("AWS_SESSION_TOKEN")};
  if (!given.access_key.empty() && !given.secret_key.empty())
    options.credentials = [given]() -> Result<S3Credentials> { return given; };
  else
    options.credentials = [file, profile] {
      return credentials_in(read_file(file).value_or(""), profile, file);
    };
  std::string region = first_of(variable, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (region.empty()) region = configured["region"];
  if (!region.empty()) options.region = region;
  options.endpoint = first_of(variable, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (options.endpoint.empty()) options.endpoint = configured["endpoint_url"];
  options.ca_file = variable("AWS_CA_BUNDLE");
  return options;
}

}  // namespace kiln
