// Message <-> frame. Writer and Reader go through the members of a struct (message_fields.h) beside
// the fields that the compiled schema has for it.
//
// Writer does not judge values: one that is out of range (a negative count) is written as it is,
// and refused by Reader, which reads bytes from anybody. The work and memory of one frame are
// bounded by
//  1. its size (kMaxMessageBytes), before anything is copied;
//  2. Cap'n Proto's traversal limit, twice the frame: every field is read once, so an honest frame
//     is traversed once, and pointers that share a target soon run out;
//  3. the nesting limit;
//  4. kMaxItems list elements per frame: a list of zero-sized structs costs no bytes on the wire,
//     but each becomes a C++ object here.
#include "schema/codec.h"

#include <capnp/any.h>
#include <capnp/message.h>
#include <capnp/schema.h>
#include <capnp/serialize.h>
#include <kj/array.h>
#include <kj/exception.h>
#include <kj/io.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "compiler_core/base/check.h"
#include "compiler_core/base/terminal_text.h"
#include "schema/kiln.capnp.h"
#include "schema/message_fields.h"

namespace kiln {
namespace {

constexpr size_t kMaxItems = 1 << 17;
constexpr int kMaxNesting = 32;
constexpr size_t kScratchWords = (kMaxFrameBytes + 4096) / sizeof(uint64_t);

// Thrown by Reader, beside kj::Exception; both become an Error in decode().
struct Malformed {
  const char* what;
};

template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = true;
template <class T>
inline constexpr bool is_bytes = Is<T, std::string> || Is<T, Digest>;
template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Layout: the places of a struct's fields in a Cap'n Proto message, in the order of kiln.capnp,
// taken from the compiled schema. (Cap'n Proto's own dynamic API takes ten times as long.)
struct Layout {
  using Type = capnp::schema::Type;
  struct Field {
    uint32_t at = 0;      // data: in sizes of the type; else the pointer's index
    uint16_t member = 0;  // its number in the struct's union
    bool list = false;
    Type::Which type = Type::VOID;     // a list's: of its elements
    uint16_t first = 0, last = 0;      // an enum's: the numbers that mean something
    std::unique_ptr<Layout> inside{};  // a struct's, and a list's of structs
  };

  explicit Layout(capnp::StructSchema schema) {
    const auto node = schema.getProto().getStruct();
    data_words = node.getDataWordCount();
    pointers = node.getPointerCount();
    union_at = node.getDiscriminantOffset();
    for (const auto in : schema.getFields()) {
      Field& field = fields.emplace_back();
      field.at = in.getProto().getSlot().getOffset();
      field.member = in.getProto().getDiscriminantValue();
      capnp::Type type = in.getType();
      field.list = type.isList();
      if (field.list) type = type.asList().getElementType();
      field.type = type.which();
      if (type.isStruct()) field.inside = std::make_unique<Layout>(type.asStruct());
      if (!type.isEnum()) continue;
      const auto numbers = type.asEnum().getEnumerants();
      field.first = numbers[0].getProto().getName() == "unset" ? 1 : 0;
      field.last = static_cast<uint16_t>(numbers.size() - 1);
    }
  }

  // Field `index`, which holds values of type T.
  template <class T>
  const Field& of(size_t index) const {
    CHECK(index < fields.size() && holds<T>(fields[index].type, fields[index].list),
          "Fields lists what kiln.capnp has");
    return fields[index];
  }
  template <class T>
  static constexpr bool holds(Type::Which type, bool list) {
    if constexpr (is_list<T>)
      return list && holds<typename T::value_type>(type, false);
    else if constexpr (Is<T, int64_t>)
      return !list && (type == Type::UINT64 || type == Type::INT64);
    else if constexpr (Is<T, std::string>)
      return !list && (type == Type::TEXT || type == Type::DATA);
    else
      return !list && type == (Is<T, bool>                     ? Type::BOOL
                               : std::is_enum_v<T>             ? Type::ENUM
                               : Is<T, int> || Is<T, uint32_t> ? Type::UINT32
                               : Is<T, uint64_t>               ? Type::UINT64
                               : Is<T, double>                 ? Type::FLOAT64
                               : Is<T, Digest>                 ? Type::DATA
                                                               : Type::STRUCT);
  }

  uint16_t data_words, pointers;
  uint32_t union_at;  // of the number that says what the union holds, in its size
  std::vector<Field> fields;
};

const Layout& envelope() {
  static const Layout layout(capnp::Schema::from<wire::Envelope>());
  return layout;
}

// Writes values to consecutive fields of a struct.
class Writer {
 public:
  Writer(capnp::AnyStruct::Builder out, const Layout& layout, unsigned first = 0)
      : data_(out.getDataSection()),
        pointers_(out.getPointerSection()),
        layout_(layout),
        next_(first) {}

  void operator()(const auto&... members) { (member(members), ...); }
  void require(bool, const char*) const {}
  // Says that the union holds the next field.
  void choose() { put(layout_.union_at, layout_.fields[next_].member); }

 private:
  static capnp::Data::Reader bytes(const auto& from) {
    return {reinterpret_cast<const kj::byte*>(std::data(from)), std::size(from)};
  }
  template <class T>
  const Layout::Field& next() {
    return layout_.of<T>(next_++);
  }
  template <class T>
  void put(uint32_t at, const T& value) {
    std::memcpy(data_.begin() + at * sizeof(T), &value, sizeof(T));
  }
  static void write(capnp::AnyStruct::Builder out, const Layout& layout, const auto& value) {
    Writer writer(out, layout);
    Fields::of(writer, value);
    CHECK(writer.next_ == layout.fields.size(), "Fields lists all that kiln.capnp has");
  }

  template <class T>
  void member(const T& value) {
    const Layout::Field& field = next<T>();
    if constexpr (Is<T, bool>)
      data_[field.at / 8] |= static_cast<kj::byte>(value << field.at % 8);
    else if constexpr (std::is_enum_v<T>)
      put(field.at, static_cast<uint16_t>(value));
    else if constexpr (is_number<T>)
      put(field.at, value);
    else if constexpr (Is<T, Digest>)
      pointers_[field.at].template setAs<capnp::Data>(bytes(value.bytes));
    else if constexpr (!Is<T, std::string>)
      write(pointers_[field.at].initAsAnyStruct(field.inside->data_words, field.inside->pointers),
            *field.inside, value);
    else if (field.type == Layout::Type::TEXT)
      pointers_[field.at].template setAs<capnp::Text>({value.data(), value.size()});
    else
      pointers_[field.at].template setAs<capnp::Data>(bytes(value));
  }
  template <class T>
  void member(const std::vector<T>& values) {
    const Layout::Field& field = next<std::vector<T>>();
    auto pointer = pointers_[field.at];
    const auto size = static_cast<unsigned>(values.size());
    if constexpr (is_number<T>) {
      auto list = pointer.template initAs<capnp::List<T>>(size);
      for (unsigned i = 0; i < size; ++i) list.set(i, values[i]);
    } else if constexpr (Is<T, Digest>) {
      auto list = pointer.template initAs<capnp::List<capnp::Data>>(size);
      for (unsigned i = 0; i < size; ++i) list.set(i, bytes(values[i].bytes));
    } else {
      const Layout& inside = *field.inside;
      auto list = pointer.initAsListOfAnyStruct(inside.data_words, inside.pointers, size);
      for (unsigned i = 0; i < size; ++i) write(list[i], inside, values[i]);
    }
  }
  template <class T>
  void member(const Sized<T>& sized) {
    member(sized.value);
  }
  void member(const std::optional<Digest>& value) { value ? member(*value) : void(++next_); }
  // A union of `error` and the value.
  template <class T>
  void member(const Result<T>& result) {
    if (result) ++next_;
    choose();
    if (result) return member(*result);
    member(result.error());
    ++next_;
  }

  capnp::Data::Builder data_;
  capnp::List<capnp::AnyPointer>::Builder pointers_;
  const Layout& layout_;
  unsigned next_;
};

// Reads consecutive fields of a struct and judges every value.
class Reader {
 public:
  // `items_left`: of the frame's allowance.
  Reader(capnp::AnyStruct::Reader in, const Layout& layout, size_t& items_left, unsigned first = 0)
      : data_(in.getDataSection()),
        pointers_(in.getPointerSection()),
        layout_(layout),
        items_left_(items_left),
        next_(first) {}

  void operator()(auto&&... members) { (member(members), ...); }
  static void require(bool holds, const char* otherwise) {
    if (!holds) throw Malformed{otherwise};
  }
  // The number of the field that the union holds. REQUIRES: the struct has a union.
  uint16_t which() const { return number<uint16_t>(layout_.union_at); }

 private:
  template <class T>
  const Layout::Field& next() {
    return layout_.of<T>(next_++);
  }
  // Zero and null where the struct is shorter than ours: an older version wrote it.
  template <class T>
  T number(uint32_t at) const {
    T value{};
    if ((at + size_t{1}) * sizeof(T) <= data_.size())
      std::memcpy(&value, data_.begin() + at * sizeof(T), sizeof(T));
    return value;
  }
  bool bit(uint32_t at) const {
    return at / 8 < data_.size() && (data_[at / 8] >> at % 8 & 1) != 0;
  }
  capnp::AnyPointer::Reader pointer(const Layout::Field& field) const {
    return field.at < pointers_.size() ? pointers_[field.at] : capnp::AnyPointer::Reader();
  }

  static void read(capnp::Data::Reader in, Digest& out) {
    require(in.size() == out.bytes.size(), "a digest does not have 32 bytes");
    std::memcpy(out.bytes.data(), in.begin(), out.bytes.size());
  }
  static void read(double in, double& out) {
    require(std::isfinite(in) && in >= 0, "a quantity is not finite or negative");
    out = in;
  }
  static void read(uint64_t in, uint64_t& out) { out = in; }
  void read(capnp::AnyStruct::Reader in, const Layout& layout, auto& out) {
    Reader reader(in, layout, items_left_);
    Fields::of(reader, out);
  }

  template <class T>
  void member(T& out) {
    const Layout::Field& field = next<T>();
    if constexpr (Is<T, bool>) {
      out = bit(field.at);
    } else if constexpr (std::is_enum_v<T>) {
      const auto value = number<uint16_t>(field.at);
      require(value >= field.first && value <= field.last, "an enum has an unknown value");
      out = static_cast<T>(value);
    } else if constexpr (Is<T, int> || Is<T, int64_t>) {
      out = number<T>(field.at);
      require(out >= 0 || field.type == Layout::Type::INT64, "a count is out of range");
    } else if constexpr (Is<T, double>) {
      read(number<double>(field.at), out);
    } else if constexpr (is_number<T>) {
      out = number<T>(field.at);
    } else if constexpr (Is<T, Digest>) {
      read(pointer(field).template getAs<capnp::Data>(), out);
    } else if constexpr (!Is<T, std::string>) {
      read(pointer(field).template getAs<capnp::AnyStruct>(), *field.inside, out);
    } else {
      const auto bytes = field.type == Layout::Type::TEXT
                             ? pointer(field).template getAs<capnp::Text>().asArray()
                             : pointer(field).template getAs<capnp::Data>().asChars();
      out.assign(bytes.begin(), bytes.size());
      // People read names and messages on a terminal, whoever sent them. No writer of Kiln sends
      // control characters.
      if (field.type == Layout::Type::TEXT) out = terminal_text(std::move(out));
    }
  }
  template <class T>
  void member(std::vector<T>& out) {
    const Layout::Field& field = next<std::vector<T>>();
    const auto read_all = [&](const auto& list, const auto& read_one) {
      require(list.size() <= items_left_, "a list is too long");
      items_left_ -= list.size();
      out.resize(list.size());
      for (unsigned i = 0; i < list.size(); ++i) read_one(list[i], out[i]);
    };
    const auto in = pointer(field);
    if constexpr (is_number<T>) {
      read_all(in.template getAs<capnp::List<T>>(), [](T from, T& to) { read(from, to); });
    } else if constexpr (Is<T, Digest>) {
      read_all(in.template getAs<capnp::List<capnp::Data>>(),
               [](capnp::Data::Reader from, Digest& to) { read(from, to); });
    } else {
      const auto list = in.template getAs<capnp::AnyList>();
      require(list.size() == 0 || list.getElementSize() == capnp::ElementSize::INLINE_COMPOSITE,
              "a list of something else");
      read_all(list.template as<capnp::List<capnp::AnyStruct>>(),
               [&](capnp::AnyStruct::Reader from, T& to) { read(from, *field.inside, to); });
    }
  }
  template <class T>
  void member(Sized<T>& sized) {
    member(sized.value);
    const size_t size = sized.value.size();
    require(sized.or_nothing ? size == sized.most || size == 0 : size <= sized.most,
            "a name, a list or bytes of a size that they may not have");
  }
  void member(std::optional<Digest>& out) {
    const auto bytes = pointer(next<Digest>()).getAs<capnp::Data>();
    if (bytes.size() != 0) read(bytes, out.emplace());
  }
  template <class T>
  void member(Result<T>& out) {
    const uint16_t held = which();
    if (held == next<Error>().member) {
      --next_;
      Error error;
      member(error);
      out = fail(std::move(error));
      ++next_;
    } else {
      require(held == layout_.fields[next_].member, "a union of unknown kind");
      out.emplace();
      member(*out);
    }
  }

  const capnp::Data::Reader data_;
  const capnp::List<capnp::AnyPointer>::Reader pointers_;
  const Layout& layout_;
  size_t& items_left_;
  unsigned next_;
};

// Member i + 1 of the envelope's union carries alternative i of Message; member 0 is `unset`.
constexpr unsigned kFirstAlternative = 1;

template <size_t... kIndices>
Message read_envelope(capnp::AnyStruct::Reader in, std::index_sequence<kIndices...>) {
  size_t items_left = kMaxItems;
  const unsigned held = Reader(in, envelope(), items_left).which();
  Reader reader(in, envelope(), items_left, held);
  Message message;
  const auto read_as = [&](auto& alternative) {
    reader(payload(alternative));
    return true;
  };
  const bool known =
      ((held == kIndices + kFirstAlternative && read_as(message.emplace<kIndices>())) || ...);
  Reader::require(known, "a message of unknown kind");
  return message;
}

class FrameOutput : public kj::OutputStream {
 public:
  explicit FrameOutput(std::string& frame) : frame_(frame) {}
  void write(const void* bytes, size_t size) override {
    frame_.append(static_cast<const char*>(bytes), size);
  }

 private:
  std::string& frame_;
};

}  // namespace

// The builder's first words lie in a buffer that is used again and again: no allocation, no fresh
// pages, for any message but the largest. The builder leaves it zeroed, as it must be given.
std::string encode(const Message& message) {
  thread_local std::vector<uint64_t> scratch(kScratchWords);
  std::string frame;
  capnp::MallocMessageBuilder builder(
      {reinterpret_cast<capnp::word*>(scratch.data()), scratch.size()});
  auto root = builder.getRoot<capnp::AnyPointer>().initAsAnyStruct(envelope().data_words,
                                                                   envelope().pointers);
  Writer writer(root, envelope(), static_cast<unsigned>(message.index()) + kFirstAlternative);
  writer.choose();
  std::visit([&](const auto& alternative) { writer(payload(alternative)); }, message);
  frame.reserve(capnp::computeSerializedSizeInWords(builder) * sizeof(capnp::word));
  FrameOutput output(frame);
  capnp::writeMessage(output, builder);
  return frame;
}

Result<Message> decode(std::string_view frame) {
  constexpr size_t kWord = sizeof(capnp::word);
  if (frame.empty() || frame.size() % kWord != 0) {
    return fail(Code::kInvalidArgument, "malformed message: not a whole number of words");
  }
  if (frame.size() > kMaxMessageBytes) {
    return fail(Code::kInvalidArgument, "malformed message: larger than a message may be");
  }
  // Received bytes are seldom aligned, so they are copied into words first.
  auto words = kj::heapArray<capnp::word>(frame.size() / kWord);
  std::memcpy(words.begin(), frame.data(), frame.size());
  capnp::ReaderOptions limits;
  limits.traversalLimitInWords = 2 * words.size();
  limits.nestingLimit = kMaxNesting;
  try {
    capnp::FlatArrayMessageReader reader(words, limits);
    if (reader.getEnd() != words.end()) {
      return fail(Code::kInvalidArgument, "malformed message: bytes after its end");
    }
    return read_envelope(reader.getRoot<capnp::AnyStruct>(),
                         std::make_index_sequence<std::variant_size_v<Message>>());
  } catch (const Malformed& malformed) {
    return fail(Code::kInvalidArgument, std::string("malformed message: ") + malformed.what);
  } catch (const kj::Exception& e) {
    return fail(Code::kInvalidArgument,
                std::string("malformed message: ") + e.getDescription().cStr());
  }
}

// ---- Parts ----

std::vector<std::string> parts_of(std::string_view whole) {
  std::vector<std::string> frames;
  for (size_t at = 0; at < whole.size(); at += kPartBytes) {
    const bool last = at + kPartBytes >= whole.size();
    frames.push_back(encode(MessagePart{std::string(whole.substr(at, kPartBytes)), last}));
  }
  return frames;
}

Result<std::optional<Message>> PartAssembly::add(std::string_view frame) {
  if (frame.size() > kMaxFrameBytes)
    return fail(Code::kInvalidArgument, "malformed message: larger than a frame may be");
  TRY(Message message, decode(frame));
  auto* part = std::get_if<MessagePart>(&message);
  if (part == nullptr) return std::optional(std::move(message));
  if (begun_.size() + part->bytes.size() > kMaxMessageBytes)
    return fail(Code::kInvalidArgument, "malformed message: larger than a message may be");
  begun_ += part->bytes;
  if (!part->last) return std::optional<Message>();
  TRY(Message whole, decode(std::exchange(begun_, {})));
  if (std::holds_alternative<MessagePart>(whole))
    return fail(Code::kInvalidArgument, "malformed message: a part of a part");
  return std::optional(std::move(whole));
}

}  // namespace kiln
