#include "worker/runner/protocol.h"

#include "worker/runner/frame_fields.h"

namespace kiln::runner {
namespace {

constexpr size_t kMaxTargetBytes = 64;
constexpr size_t kMaxNameBytes = 256;  // of a device, a template, a decision
constexpr uint64_t kMaxDecisions = 4096;
constexpr uint64_t kMaxFloats = 2;  // the last of enum Floats

void write(Writer& out, const MeasurementPolicy& policy) {
  out.i64(policy.screen_runs).f64(policy.screen_drop);
  out.i64(policy.race_runs).f64(policy.race_drop);
  out.i64(policy.finalists).i64(policy.final_runs).f64(policy.tie).i64(policy.launch_timeout_ms);
}

MeasurementPolicy read_policy(Reader& in) {
  MeasurementPolicy policy;
  const auto runs = [&in] { return static_cast<int>(in.i64(0, kMaxSamples)); };
  policy.screen_runs = runs();
  policy.screen_drop = in.f64(0);
  policy.race_runs = runs();
  policy.race_drop = in.f64(0);
  policy.finalists = runs();
  policy.final_runs = runs();
  policy.tie = in.f64(0);
  policy.launch_timeout_ms = in.i64(1, INT32_MAX);
  return policy;
}

void write(Writer& out, const Measurement& measurement) {
  out.u64(measurement.samples_us.size());
  for (const double sample : measurement.samples_us) out.f64(sample);
}

Measurement read_measurement(Reader& in) {
  Measurement measurement;
  const uint64_t count = in.u64(kMaxSamples);
  for (uint64_t i = 0; i < count && in.ok(); ++i) measurement.samples_us.push_back(in.f64(0));
  return measurement;
}

std::string write(Writer out, const std::vector<std::string>& texts) {
  out.u64(texts.size());
  for (const std::string& text : texts) out.text(text);
  return out.finish();
}

std::vector<std::string> read_outputs(Reader& in) {
  std::vector<std::string> outputs;
  const uint64_t count = in.u64(kMaxOutputs);
  for (uint64_t i = 0; i < count && in.ok(); ++i) outputs.push_back(in.text(kMaxJudgedBytes));
  return outputs;
}

struct RequestWriter {
  std::string operator()(const OpenWorkload& m) const {
    return Writer(Kind::kOpenWorkload)
        .u64(m.seed)
        .text(m.graph_text)
        .u64(m.inputs_only)
        .u64(m.floats)
        .finish();
  }
  std::string operator()(const VerifyKernel& m) const {
    Writer out(Kind::kVerifyKernel);
    return out.u64(m.slot).text(m.recipe_json).text(m.binary).digest(m.digest).finish();
  }
  std::string operator()(const RaceKernel& m) const {
    Writer out(Kind::kRaceKernel);
    out.u64(m.slot).f64(m.incumbent_us);
    write(out, m.policy);
    return out.finish();
  }
  std::string operator()(const TimeFinalists& m) const {
    Writer out(Kind::kTimeFinalists);
    out.u64(m.slots.size());
    for (const uint64_t slot : m.slots) out.u64(slot);
    write(out, m.policy);
    return out.finish();
  }
  std::string operator()(const CompileSource& m) const {
    return Writer(Kind::kCompileSource).text(m.target).text(m.text).finish();
  }
  std::string operator()(const LaunchKernel& m) const {
    Writer out(Kind::kLaunchKernel);
    return out.text(m.recipe_json).text(m.binary).digest(m.digest).u64(m.launches).finish();
  }
  std::string operator()(const JudgeOutputs& m) const {
    return write(Writer(Kind::kJudgeOutputs), m.outputs);
  }
  std::string operator()(const LowerCandidate& m) const {
    Writer out(Kind::kLowerCandidate);
    out.text(m.graph_text).u64(static_cast<uint64_t>(m.family)).text(m.schedule.template_name);
    out.u64(m.schedule.decisions.size());
    for (const Decision& decision : m.schedule.decisions)
      out.text(decision.name).i64(decision.value);
    out.u64(static_cast<uint64_t>(m.target.backend)).text(m.target.isa);
    return out.text(m.target.device_model).i64(m.target.units).text(m.target.toolkit).finish();
  }
  std::string operator()(const CancelCompile&) const {
    return Writer(Kind::kCancelCompile).finish();
  }
  std::string operator()(const MeasureCalibration&) const {
    return Writer(Kind::kMeasureCalibration).finish();
  }
  std::string operator()(const PrepareDevice& m) const {
    return Writer(Kind::kPrepareDevice).text(m.binary).digest(m.digest).finish();
  }
};

struct ReplyWriter {
  std::string operator()(const CompiledObject& m) const {
    Writer out(Kind::kCompiledObject);
    const KernelResources& r = m.resources;
    for (const int number : {r.registers, r.spill_bytes, r.stack_bytes, r.shared_bytes})
      out.i64(number);
    return out.text(m.binary).finish();
  }
  std::string operator()(const Launched& m) const {
    return write(Writer(Kind::kLaunched), m.outputs);
  }
  std::string operator()(const Lowered& m) const {
    return Writer(Kind::kLowered).u64(m.is_source).text(m.recipe_json).text(m.bytes).finish();
  }
  std::string operator()(const Opened& m) const {
    return Writer(Kind::kOpened).f64(m.reference_ms).f64(m.open_ms).u64(m.floats).finish();
  }
  std::string operator()(const Verified& m) const {
    Writer out(Kind::kVerified);
    out.u64(static_cast<uint64_t>(m.verdict));
    return out.text(std::string_view(m.log).substr(0, kMaxLogBytes)).finish();
  }
  std::string operator()(const Raced& m) const {
    Writer out(Kind::kRaced);
    out.u64(m.dropped);
    write(out, m.measurement);
    return out.text(std::string_view(m.note).substr(0, kMaxLogBytes)).finish();
  }
  std::string operator()(const FinalistsTimed& m) const {
    Writer out(Kind::kFinalistsTimed);
    out.u64(m.measurements.size());
    for (const Measurement& measurement : m.measurements) write(out, measurement);
    return out.text(std::string_view(m.note).substr(0, kMaxLogBytes)).finish();
  }
  std::string operator()(const DevicePrepared& m) const {
    Writer out(Kind::kDevicePrepared);
    const CudaFacts& f = m.facts;
    out.text(std::string_view(f.name).substr(0, kMaxNameBytes));
    out.text(std::string_view(f.bus_id).substr(0, kMaxNameBytes));
    for (const int64_t number :
         {int64_t{f.ordinal}, int64_t{f.capability}, int64_t{f.sms}, int64_t{f.driver},
          int64_t{f.max_shared_bytes}, f.l2_bytes, f.memory_bytes})
      out.i64(number);
    out.u64(m.libraries.size());
    for (const LibraryVersion& library : m.libraries) {
      out.text(std::string_view(library.name).substr(0, kMaxNameBytes));
      out.text(std::string_view(library.version).substr(0, kMaxNameBytes));
    }
    return out.finish();
  }
  std::string operator()(const CalibrationMeasured& m) const {
    return Writer(Kind::kCalibrationMeasured).f64(m.us).finish();
  }
  std::string operator()(const Progress&) const { return Writer(Kind::kProgress).finish(); }
  std::string operator()(const Leaving&) const { return Writer(Kind::kLeaving).finish(); }
  std::string operator()(const Failed& m) const {
    Writer out(Kind::kFailed);
    out.u64(static_cast<uint64_t>(m.error.code));
    return out.text(std::string_view(m.error.message).substr(0, kMaxLogBytes)).finish();
  }
};

Request read_open(Reader& in) {
  OpenWorkload m;
  m.seed = in.u64(UINT64_MAX);
  m.graph_text = in.text(kMaxFrameBytes);
  m.inputs_only = in.u64(1) != 0;
  m.floats = in.u64(kMaxFloats);
  return m;
}

Request read_launch(Reader& in) {
  LaunchKernel m;
  m.recipe_json = in.text(kMaxFrameBytes);
  m.binary = in.text(kMaxFrameBytes);
  m.digest = in.digest();
  m.launches = in.u64(kMaxLaunches);
  return m;
}

Request read_verify(Reader& in) {
  VerifyKernel m;
  m.slot = in.u64(kMaxSlots - 1);
  m.recipe_json = in.text(kMaxFrameBytes);
  m.binary = in.text(kMaxFrameBytes);
  m.digest = in.digest();
  return m;
}

Request read_race(Reader& in) {
  RaceKernel m;
  m.slot = in.u64(kMaxSlots - 1);
  m.incumbent_us = in.f64(0);
  m.policy = read_policy(in);
  return m;
}

Request read_finalists(Reader& in) {
  TimeFinalists m;
  const uint64_t count = in.u64(kMaxSlots);
  for (uint64_t i = 0; i < count && in.ok(); ++i) m.slots.push_back(in.u64(kMaxSlots - 1));
  m.policy = read_policy(in);
  return m;
}

Request read_compile(Reader& in) {
  CompileSource m;
  m.target = in.text(kMaxTargetBytes);
  m.text = in.text(kMaxFrameBytes);
  return m;
}

Request read_lower(Reader& in) {
  LowerCandidate m;
  m.graph_text = in.text(kMaxFrameBytes);
  m.family = static_cast<Family>(
      in.i64(static_cast<int64_t>(Family::kPointwise), static_cast<int64_t>(Family::kRowUpdate)));
  m.schedule.template_name = in.text(kMaxNameBytes);
  const uint64_t decisions = in.u64(kMaxDecisions);
  for (uint64_t i = 0; i < decisions && in.ok(); ++i) {
    Decision decision;
    decision.name = in.text(kMaxNameBytes);
    decision.value = in.i64(INT64_MIN, INT64_MAX);
    m.schedule.decisions.push_back(std::move(decision));
  }
  m.target.backend = static_cast<Backend>(
      in.i64(static_cast<int64_t>(Backend::kCpu), static_cast<int64_t>(Backend::kCuda)));
  m.target.isa = in.text(kMaxNameBytes);
  m.target.device_model = in.text(kMaxNameBytes);
  m.target.units = static_cast<int>(in.i64(0, INT32_MAX));
  m.target.toolkit = in.text(kMaxNameBytes);
  return m;
}

Request read_prepare(Reader& in) {
  PrepareDevice m;
  m.binary = in.text(kMaxFrameBytes);
  m.digest = in.digest();
  return m;
}

Reply read_opened(Reader& in) {
  Opened m;
  m.reference_ms = in.f64(0);
  m.open_ms = in.f64(0);
  m.floats = in.u64(kMaxFloats);
  return m;
}

Reply read_prepared(Reader& in) {
  DevicePrepared m;
  CudaFacts& f = m.facts;
  f.name = in.text(kMaxNameBytes);
  f.bus_id = in.text(kMaxNameBytes);
  for (int* number : {&f.ordinal, &f.capability, &f.sms, &f.driver, &f.max_shared_bytes})
    *number = static_cast<int>(in.i64(0, INT32_MAX));
  f.l2_bytes = in.i64(0, INT64_MAX);
  f.memory_bytes = in.i64(0, INT64_MAX);
  m.libraries.resize(in.u64(kMaxLibraries));
  for (LibraryVersion& library : m.libraries) {
    library.name = in.text(kMaxNameBytes);
    library.version = in.text(kMaxNameBytes);
  }
  return m;
}

Reply read_object(Reader& in) {
  CompiledObject m;
  KernelResources& r = m.resources;
  for (int* number : {&r.registers, &r.spill_bytes, &r.stack_bytes, &r.shared_bytes})
    *number = static_cast<int>(in.i64(0, INT32_MAX));
  m.binary = in.text(kMaxFrameBytes);
  return m;
}

Reply read_lowered(Reader& in) {
  Lowered m;
  m.is_source = in.u64(1) != 0;
  m.recipe_json = in.text(kMaxFrameBytes);
  m.bytes = in.text(kMaxFrameBytes);
  return m;
}

Reply read_verified(Reader& in) {
  Verified m;
  m.verdict = static_cast<Verdict>(
      in.i64(static_cast<int64_t>(Verdict::kOk), static_cast<int64_t>(Verdict::kDeviceLost)));
  m.log = in.text(kMaxLogBytes);
  return m;
}

Reply read_raced(Reader& in) {
  Raced m;
  m.dropped = in.u64(1) != 0;
  m.measurement = read_measurement(in);
  m.note = in.text(kMaxLogBytes);
  return m;
}

Reply read_finalists_timed(Reader& in) {
  FinalistsTimed m;
  const uint64_t count = in.u64(kMaxSlots);
  for (uint64_t i = 0; i < count && in.ok(); ++i) m.measurements.push_back(read_measurement(in));
  m.note = in.text(kMaxLogBytes);
  return m;
}

Reply read_failed(Reader& in) {
  Failed m;
  m.error.code = static_cast<Code>(
      in.i64(static_cast<int64_t>(Code::kInvalidArgument), static_cast<int64_t>(Code::kInternal)));
  m.error.message = in.text(kMaxLogBytes);
  return m;
}

}  // namespace

std::string encode(const Request& request) {
  return std::visit(RequestWriter{}, request);
}

std::string encode(const Reply& reply) {
  return std::visit(ReplyWriter{}, reply);
}

Result<Request> decode_request(std::string_view body) {
  if (body.empty()) return fail(Code::kCorruption, "empty frame");
  Reader in(body.substr(1));
  Request request;
  switch (static_cast<Kind>(body[0])) {
    case Kind::kOpenWorkload:
      request = read_open(in);
      break;
    case Kind::kVerifyKernel:
      request = read_verify(in);
      break;
    case Kind::kRaceKernel:
      request = read_race(in);
      break;
    case Kind::kTimeFinalists:
      request = read_finalists(in);
      break;
    case Kind::kCompileSource:
      request = read_compile(in);
      break;
    case Kind::kCancelCompile:
      request = CancelCompile{};
      break;
    case Kind::kMeasureCalibration:
      request = MeasureCalibration{};
      break;
    case Kind::kLaunchKernel:
      request = read_launch(in);
      break;
    case Kind::kJudgeOutputs:
      request = JudgeOutputs{read_outputs(in)};
      break;
    case Kind::kLowerCandidate:
      request = read_lower(in);
      break;
    case Kind::kPrepareDevice:
      request = read_prepare(in);
      break;
    default:
      return fail(Code::kCorruption, "unknown kind of request");
  }
  if (!in.done()) return fail(Code::kCorruption, "malformed request");
  return request;
}

Result<Reply> decode_reply(std::string_view body) {
  if (body.empty()) return fail(Code::kCorruption, "empty frame");
  Reader in(body.substr(1));
  Reply reply;
  switch (static_cast<Kind>(body[0])) {
    case Kind::kOpened:
      reply = read_opened(in);
      break;
    case Kind::kVerified:
      reply = read_verified(in);
      break;
    case Kind::kRaced:
      reply = read_raced(in);
      break;
    case Kind::kFinalistsTimed:
      reply = read_finalists_timed(in);
      break;
    case Kind::kCompiledObject:
      reply = read_object(in);
      break;
    case Kind::kLaunched:
      reply = Launched{read_outputs(in)};
      break;
    case Kind::kLowered:
      reply = read_lowered(in);
      break;
    case Kind::kDevicePrepared:
      reply = read_prepared(in);
      break;
    case Kind::kProgress:
      reply = Progress{};
      break;
    case Kind::kLeaving:
      reply = Leaving{};
      break;
    case Kind::kCalibrationMeasured:
      reply = CalibrationMeasured{in.f64(0)};
      break;
    case Kind::kFailed:
      reply = read_failed(in);
      break;
    default:
      return fail(Code::kCorruption, "unknown kind of reply");
  }
  if (!in.done()) return fail(Code::kCorruption, "malformed reply");
  return reply;
}

}  // namespace kiln::runner
