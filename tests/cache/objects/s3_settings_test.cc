#include "cache/objects/s3_settings.h"

#include <gtest/gtest.h>

#include <map>

#include "compiler_core/base/file.h"

namespace kiln {
namespace {

class S3SettingsTest : public ::testing::Test {
 protected:
  S3Options settings() {
    return s3_settings([this](const char* name) { return environment_[name]; });
  }
  void write(const char* file, std::string_view text) {
    ASSERT_TRUE(make_directories(home_.path() / ".aws"));
    ASSERT_TRUE(write_file(home_.path() / ".aws" / file, text));
  }

  TempDir home_ = TempDir::create().value();
  std::map<std::string, std::string> environment_ = {{"HOME", home_.path()}};
};

TEST_F(S3SettingsTest, VariablesComeFirst) {
  write("credentials", "[default]\naws_access_key_id = F\naws_secret_access_key = f\n");
  write("config", "[default]\nregion = eu-west-1\nendpoint_url = https://file\n");
  environment_["AWS_ACCESS_KEY_ID"] = "V";
  environment_["AWS_SECRET_ACCESS_KEY"] = "v";
  environment_["AWS_SESSION_TOKEN"] = "t";
  environment_["AWS_REGION"] = "us-west-2";
  environment_["AWS_ENDPOINT_URL"] = "http://any:1";
  environment_["AWS_ENDPOINT_URL_S3"] = "http://s3:1";
  const S3Options options = settings();
  EXPECT_EQ(options.credentials().value(), (S3Credentials{"V", "v", "t"}));
  EXPECT_EQ(options.region, "us-west-2");
  EXPECT_EQ(options.endpoint, "http://s3:1");
}

TEST_F(S3SettingsTest, FilesAreReadByProfileAndAnewForEachRequest) {
  environment_["AWS_PROFILE"] = "fleet";
  write("config", "[default]\nregion = no\n[profile fleet]\n# a comment\nregion=eu-west-1 \r\n");
  write("credentials",
        "[default]\naws_access_key_id = no\n[ fleet ]\naws_access_key_id=A\n;c\n"
        "aws_secret_access_key = a=b+/ \n");
  const S3Options options = settings();
  EXPECT_EQ(options.region, "eu-west-1");
  EXPECT_EQ(options.credentials().value(), (S3Credentials{"A", "a=b+/", ""}));
  write("credentials", "[fleet]\naws_access_key_id=B\naws_secret_access_key=b");
  EXPECT_EQ(options.credentials().value(), (S3Credentials{"B", "b", ""}));
}

TEST_F(S3SettingsTest, WhereThereAreNoneTheErrorSaysWhatToSet) {
  const auto none = settings().credentials();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kPermissionDenied);
  EXPECT_NE(none.error().message.find("AWS_ACCESS_KEY_ID"), std::string::npos);
  EXPECT_NE(none.error().message.find("[default]"), std::string::npos);
}

}  // namespace
}  // namespace kiln
