// What an S3 store makes of a service that fails, lies or falls silent.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "compiler_core/base/primitives.h"
#include "compiler_core/base/signature.h"
#include "tests/cache/objects/faulty_server.h"
#include "tests/cache/objects/places.h"

namespace kiln {
namespace {

using testing::FaultyServer;
using Request = FaultyServer::Request;
using Reply = FaultyServer::Reply;

class S3Faults : public ::testing::Test {
 protected:
  void serve(FaultyServer::Answer answer) {
    server_ = std::make_unique<FaultyServer>(std::move(answer));
    options_.endpoint = server_->endpoint();
    options_.stall_timeout = stall_timeout_;
    options_.credentials = []() -> Result<S3Credentials> {
      return S3Credentials{"AKEY", "hidden"};
    };
    open();
  }
  void open() { store_ = open_objects("s3://bucket/some/prefix", {options_}).value(); }
  // The error of get("object").
  Error got() {
    const auto result = get(*store_, "object");
    EXPECT_FALSE(result);
    return result ? Error{} : result.error();
  }
  static bool mentions(const Error& error, const std::string& text) {
    return error.message.find(text) != std::string::npos;
  }

  S3Options options_;
  std::chrono::milliseconds stall_timeout_ = std::chrono::minutes(1);
  std::unique_ptr<FaultyServer> server_;
  std::unique_ptr<ObjectStore> store_;  // goes first
};

TEST_F(S3Faults, FailuresThatPassAreTriedAgain) {
  const std::vector<Reply> failures = {
      FaultyServer::error(500, "InternalError"),
      FaultyServer::error(503, "SlowDown"),
      FaultyServer::error(400, "RequestTimeout"),
      FaultyServer::error(400, "BadDigest"),
      FaultyServer::reply(429, "slow down", "retry-after: 0\r\n"),
      FaultyServer::reply(502, "<html>bad gateway</html>"),
      {"", Reply::Then::kClose},
      {"", Reply::Then::kReset},
      {"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of", Reply::Then::kClose},
      {"HTTP/1.1 200 OK\r\ncontent-le", Reply::Then::kReset},
      {"what is this\r\n\r\n", Reply::Then::kClose},
  };
  for (const Reply& failure : failures) {
    serve([&](const Request& request) {
      return request.number == 1 ? failure : FaultyServer::reply(200, "content");
    });
    const auto bytes = get(*store_, "object");
    EXPECT_EQ(bytes.value_or(""), "content") << failure.bytes;
    EXPECT_EQ(server_->requests(), 2) << failure.bytes;
  }
}

TEST_F(S3Faults, APutIsSentAgainWholeAndWithItsDigest) {
  const std::string bytes(300'000, 'b');
  std::atomic<int> whole{0};
  serve([&](const Request& request) -> Reply {
    if (request.body == bytes && request.header("x-amz-content-sha256") == to_hex(sha256(bytes)) &&
        request.header("x-amz-meta-kiln-sha256") == to_hex(sha256(bytes)) &&
        request.head.starts_with("PUT /bucket/some/prefix/object HTTP/1.1\r\n"))
      ++whole;
    if (request.number == 1) return {"", Reply::Then::kReset};
    return request.number < 4 ? FaultyServer::error(503, "SlowDown") : FaultyServer::reply(200, "");
  });
  const Status stored = put(*store_, "object", bytes);
  EXPECT_TRUE(stored) << stored.error().message;
  EXPECT_EQ(whole, 4);
}

TEST_F(S3Faults, AServiceThatOnlyFailsIsUnavailableAtTheDeadline) {
  Error error;
  // A later one where the service took longer.
  for (std::chrono::milliseconds deadline(400);
       deadline < std::chrono::minutes(2) && !mentions(error, "InternalError"); deadline *= 4) {
    options_.deadline = deadline;
    serve([](const Request&) { return FaultyServer::error(500, "InternalError"); });
    error = got();
    EXPECT_EQ(error.code, Code::kUnavailable);
  }
  EXPECT_TRUE(mentions(error, "InternalError") && mentions(error, "tried")) << error.message;
  EXPECT_EQ(put(*store_, "object", "x").error().code, Code::kUnavailable);
  EXPECT_EQ(remove(*store_, "object").error().code, Code::kUnavailable);
  EXPECT_EQ(list(*store_, "").error().code, Code::kUnavailable);
}

TEST_F(S3Faults, NobodyThereIsUnavailable) {
  serve([](const Request&) { return Reply{}; });
  server_.reset();
  options_.deadline = std::chrono::milliseconds(300);
  open();
  EXPECT_EQ(got().code, Code::kUnavailable);
}

TEST_F(S3Faults, SilenceIsGivenUpAndTriedAgain) {
  stall_timeout_ = std::chrono::seconds(1);
  serve([](const Request& request) -> Reply {
    if (request.number == 1) return {"", Reply::Then::kStall};
    if (request.number == 2)
      return {"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nthen nothing", Reply::Then::kStall};
    return FaultyServer::reply(200, "content");
  });
  EXPECT_EQ(get(*store_, "object").value_or(""), "content");
}

TEST_F(S3Faults, AStoreThatGoesDoesNotWaitForSilence) {
  serve([](const Request&) -> Reply { return {"", Reply::Then::kStall}; });
  std::atomic<int> away{0};
  for (int i = 0; i < 100; ++i)
    store_->get("object", [&](Result<std::string> bytes) {
      if (!bytes && bytes.error().code == Code::kUnavailable) ++away;
    });
  store_.reset();
  EXPECT_EQ(away, 100);
}

// Only the service itself knows that an object is not there: on its word caches forget.
TEST_F(S3Faults, OnlyAnErrorOfS3IsAnAbsence) {
  serve([](const Request&) { return FaultyServer::error(404, "NoSuchKey"); });
  EXPECT_EQ(got().code, Code::kNotFound);
  EXPECT_TRUE(remove(*store_, "object"));
  const std::vector<Reply> others = {
      FaultyServer::reply(404, "<html><h1>404 Not Found</h1></html>"),
      FaultyServer::reply(404, ""),
      FaultyServer::reply(404, "NoSuchKey"),
      FaultyServer::error(404, "NoSuchBucket"),
      FaultyServer::error(404, "NoSuchUpload"),
      FaultyServer::error(403, "NoSuchKey"),
      FaultyServer::reply(404, "<Error><Code>NoSuchKey"),
      FaultyServer::reply(204, ""),
      FaultyServer::reply(206, "cont"),
      FaultyServer::reply(304, ""),
      FaultyServer::reply(410, "gone"),
  };
  for (const Reply& other : others) {
    serve([&](const Request&) { return other; });
    const Error error = got();
    EXPECT_NE(error.code, Code::kNotFound) << other.bytes << "\n" << error.message;
  }
}

TEST_F(S3Faults, AnObjectThatIsNotWhatWasPutIsNoticed) {
  const std::string digest = "x-amz-meta-kiln-sha256: " + to_hex(sha256("content")) + "\r\n";
  serve([&](const Request&) { return FaultyServer::reply(200, "altered", digest); });
  EXPECT_EQ(got().code, Code::kCorruption);
  EXPECT_EQ(server_->requests(), 2) << "twice altered is altered where it lies";
  serve([&](const Request& request) {
    return FaultyServer::reply(200, request.number == 1 ? "altered" : "content", digest);
  });
  EXPECT_EQ(get(*store_, "object").value_or(""), "content");
}

TEST_F(S3Faults, ABodyWhoseEndCannotBeToldIsNotTaken) {
  options_.deadline = std::chrono::milliseconds(300);
  serve([](const Request&) -> Reply {
    return {"HTTP/1.1 200 OK\r\n\r\ncont", Reply::Then::kClose};
  });
  EXPECT_EQ(got().code, Code::kUnavailable);
}

TEST_F(S3Faults, BodiesAreBounded) {
  options_.max_object_bytes = 1000;
  serve([](const Request&) { return FaultyServer::reply(200, std::string(1001, 'x')); });
  EXPECT_EQ(got().code, Code::kUnsupported);
  EXPECT_EQ(put(*store_, "object", std::string(1001, 'x')).error().code, Code::kInvalidArgument);
  serve([](const Request&) { return FaultyServer::reply(404, std::string(10 << 20, 'x')); });
  EXPECT_EQ(got().code, Code::kUnavailable);
}

TEST_F(S3Faults, ARedirectIsNotFollowed) {
  FaultyServer elsewhere([](const Request&) { return FaultyServer::reply(200, "stolen"); });
  for (const int status : {301, 302, 307, 308}) {
    serve([&](const Request&) {
      return FaultyServer::error(
          status, "PermanentRedirect",
          "location: " + elsewhere.endpoint() + "/\r\nx-amz-bucket-region: eu-north-1\r\n");
    });
    const Error error = got();
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_TRUE(mentions(error, "eu-north-1") && mentions(error, "AWS_REGION")) << error.message;
  }
  EXPECT_EQ(elsewhere.requests(), 0);
}

TEST_F(S3Faults, ErrorsSayWhatToDo) {
  const std::vector<std::tuple<int, const char*, Code, const char*>> errors = {
      {404, "NoSuchBucket", Code::kInvalidArgument, "there is no bucket 'bucket'"},
      {403, "InvalidAccessKeyId", Code::kPermissionDenied, "does not know the access key AKEY"},
      {403, "SignatureDoesNotMatch", Code::kPermissionDenied, "AWS_SECRET_ACCESS_KEY"},
      {403, "RequestTimeTooSkewed", Code::kPermissionDenied, "set the clock right"},
      {400, "ExpiredToken", Code::kPermissionDenied, "get new ones"},
      {403, "AccessDenied", Code::kPermissionDenied, "needs GetObject"},
      {400, "AuthorizationHeaderMalformed", Code::kInvalidArgument, "region"},
      {400, "InvalidDigest", Code::kUnavailable, "400 InvalidDigest: because"},
  };
  for (const auto& [status, name, code, text] : errors) {
    serve([&, status = status, name = name](const Request&) {
      return FaultyServer::error(status, name, "date: Mon, 23 Nov 2026 17:38:00 GMT\r\n");
    });
    const Error error = got();
    EXPECT_EQ(error.code, code) << name;
    EXPECT_TRUE(mentions(error, text)) << error.message;
    EXPECT_TRUE(mentions(error, "s3://bucket/some/prefix/: get object")) << error.message;
    EXPECT_FALSE(mentions(error, "hidden")) << error.message;
    EXPECT_EQ(server_->requests(), 1) << name << " does not pass";
  }
}

TEST_F(S3Faults, WhatAServiceWritesDoesNotReachATerminal) {
  serve([](const Request&) {
    return FaultyServer::reply(400, "<Error><Code>\x1b[2J</Code><Message>a\nb\x07&amp;" +
                                        std::string(5000, 'x') + "</Message></Error>");
  });
  const Error error = got();
  EXPECT_TRUE(std::ranges::all_of(error.message, [](char c) { return c >= ' ' && c <= '~'; }));
  EXPECT_LT(error.message.size(), 600u);
}

TEST_F(S3Faults, AListThatIsNoneIsNotTaken) {
  const auto listing = [](const std::string& inside) {
    return FaultyServer::reply(200, "<ListBucketResult>" + inside + "</ListBucketResult>");
  };
  const std::vector<std::pair<Reply, Code>> answers = {
      {FaultyServer::reply(200, "<html>welcome</html>"), Code::kUnavailable},
      {listing("<IsTruncated>true</IsTruncated>"), Code::kUnavailable},
      {listing("<Contents><Size>1</Size></Contents>"), Code::kUnavailable},
      {listing("<Contents><Key>some/prefix/b</Key></Contents>"
               "<Contents><Key>some/prefix/a</Key></Contents>"),
       Code::kUnsupported},
  };
  const auto patient = options_.deadline;
  for (const auto& [reply, code] : answers) {
    options_.deadline = code == Code::kUnavailable ? std::chrono::milliseconds(300) : patient;
    serve([&, reply = reply](const Request&) { return reply; });
    const auto listed = list(*store_, "");
    ASSERT_FALSE(listed) << reply.bytes;
    EXPECT_EQ(listed.error().code, code) << reply.bytes;
  }
  options_.deadline = patient;
  serve([&](const Request&) {
    return listing(
        "<Contents><Key>other</Key></Contents><Contents><Key>some/prefix/x y</Key>"
        "</Contents><Contents><Key>some/prefix/z</Key><Size>7</Size></Contents>");
  });
  const auto listed = list(*store_, "");
  ASSERT_TRUE(listed) << listed.error().message;
  ASSERT_EQ(listed->size(), 1u) << "what others put there is passed over";
  EXPECT_EQ(listed->front().name, "z");
}

TEST_F(S3Faults, TooManyCallsAreRefusedAtOnce) {
  options_.max_waiting = 3;
  serve([](const Request&) -> Reply { return {"", Reply::Then::kStall}; });
  for (int i = 0; i < 3; ++i) store_->get("object", [](const Result<std::string>&) {});
  const Error error = got();
  EXPECT_EQ(error.code, Code::kOverloaded);
  EXPECT_GT(error.retry_after_ms, 0);
}

// Credentials on disk may be replaced while we run.
TEST_F(S3Faults, CredentialsAreAskedForEachTime) {
  std::atomic<int> asked{0};
  std::atomic<bool> renewed{false};
  serve([&](const Request& request) {
    if (request.header("authorization").find("Credential=KEY2/") != std::string::npos)
      renewed = true;
    return request.number == 1 ? FaultyServer::error(500, "InternalError")
                               : FaultyServer::reply(200, "content");
  });
  options_.credentials = [&]() -> Result<S3Credentials> {
    return S3Credentials{fmt::format("KEY{}", ++asked), "SECRET"};
  };
  open();
  EXPECT_EQ(get(*store_, "object").value_or(""), "content");
  EXPECT_TRUE(renewed);
}

}  // namespace
}  // namespace kiln
