// The examples that AWS publishes with its description of the signature (Amazon S3 API Reference,
// "Authenticating Requests (AWS Signature Version 4)").
#include "cache/objects/s3_signer.h"

#include <gtest/gtest.h>

#include "compiler_core/base/primitives.h"
#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

const S3Credentials kCredentials{"AKIAIOSFODNN7EXAMPLE",
                                 "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
constexpr int64_t kTime = 1369353600;  // 2013-05-24T00:00:00Z
constexpr char kHost[] = "examplebucket.s3.amazonaws.com";

std::string authorization(const S3Request& request, std::string_view payload = "") {
  return signed_headers(request, kCredentials, "us-east-1", kTime, to_hex(sha256(payload)))
      .at("authorization");
}

std::string expected(const char* names, const char* signature) {
  return std::string(
             "AWS4-HMAC-SHA256 "
             "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request") +
         ",SignedHeaders=" + names + ",Signature=" + signature;
}

TEST(S3Signer, SignsTheGetOfAnObject) {
  EXPECT_EQ(authorization({"GET", kHost, "/test.txt", {}, {{"range", "bytes=0-9"}}}),
            expected("host;range;x-amz-content-sha256;x-amz-date",
                     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

TEST(S3Signer, SignsThePutOfAnObjectWhoseNameNeedsAnEscape) {
  EXPECT_EQ(authorization({"PUT",
                           kHost,
                           "/test$file.text",
                           {},
                           {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                            {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}},
                          "Welcome to Amazon S3."),
            expected("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

TEST(S3Signer, SignsAQueryWithoutAValue) {
  EXPECT_EQ(authorization({"GET", kHost, "/", {{"lifecycle", ""}}, {}}),
            expected("host;x-amz-content-sha256;x-amz-date",
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST(S3Signer, SignsAList) {
  EXPECT_EQ(authorization({"GET", kHost, "/", {{"max-keys", "2"}, {"prefix", "J"}}, {}}),
            expected("host;x-amz-content-sha256;x-amz-date",
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(S3Signer, SignsALink) {
  EXPECT_EQ(
      signed_target({"GET", kHost, "/test.txt", {}, {}}, kCredentials, "us-east-1", kTime, 86400),
      "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F"
      "20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires="
      "86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
      "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

TEST(S3Signer, TheTokenOfTemporaryCredentialsIsSentAndSigned) {
  S3Credentials temporary = kCredentials;
  temporary.session_token = "token/+=";
  const auto headers =
      signed_headers({"GET", kHost, "/a", {}, {}}, temporary, "eu-west-1", kTime, "x");
  EXPECT_EQ(headers.at("x-amz-security-token"), "token/+=");
  EXPECT_NE(headers.at("authorization").find("x-amz-date;x-amz-security-token,"),
            std::string::npos);
  const std::string link =
      signed_target({"GET", kHost, "/a", {}, {}}, temporary, "eu-west-1", kTime, 60);
  EXPECT_NE(link.find("&X-Amz-Security-Token=token%2F%2B%3D&"), std::string::npos) << link;
}

}  // namespace
}  // namespace kiln
