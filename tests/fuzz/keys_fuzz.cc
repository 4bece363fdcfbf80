// Files of keys and signatures, as people edit them and disks damage them: a client's key, a
// coordinator's pair, its list of who may come in, a public signing key, a signature.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "compiler_core/base/check.h"
#include "compiler_core/base/signature.h"
#include "schema/keys/key_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {
namespace {

// https://rfc.zeromq.org/spec/32/
bool is_digit(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view(".-:+=^!/*?&<>()[]{}@%$#").find(c) != std::string_view::npos;
}

// One file in memory under each of the names that a folder of keys has.
struct Folder {
  Folder() {
    CHECK(memory >= 0 && ::fchmod(memory, 0600) == 0, "its owner's alone");
    const std::string file = "/proc/self/fd/" + std::to_string(memory);
    for (const char* name : {"ci.key", "coordinator.key", "authorized_keys", "ed25519.pub"})
      std::filesystem::create_symlink(file, path() / name);
  }
  const Path& path() const { return temp.path(); }

  const TempDir temp = TempDir::create("kiln-fuzz").value();
  const int memory = ::memfd_create("keys", MFD_CLOEXEC);
};

void check_key(const std::string& key) {
  CHECK(key.size() == 40 && std::ranges::all_of(key, is_digit), "a key has 40 digits of Z85");
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string z85 = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", hex(64, 'a');
  const std::string pair = "public = " + z85 + "\nsecret = " + z85 + "\n";
  return {
      "# Key of ci\nname = ci\nrole = submit\n" + pair + "server = " + z85 +
          "\nsigning_key = " + hex + "\n",
      pair,
      "# who may come in\nsubmit ci " + z85 + "\nworker gpu-7 " + z85 + "\n",
      hex + "\n",
      Signature{std::string(kPublicKeyBytes, 's'), std::string(kSignatureBytes, 'b')}.to_string(),
      Signature{
          std::string(kPublicKeyBytes, 's'),
          std::string(kSignatureBytes, 'b'),
          {std::string(kPublicKeyBytes, 'o'), 1'900'000'000, std::string(kSignatureBytes, 'e')}}
          .to_string()};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;  // NOLINT: one function
  static const fuzz::Folder folder;
  CHECK(::ftruncate(folder.memory, 0) == 0 &&
            ::pwrite(folder.memory, data, size, 0) == static_cast<ssize_t>(size),
        "memory takes it");
  if (const auto key = read_client_key(folder.path() / "ci.key")) {
    CHECK(check_key_name(key->name), "a key has a name");
    for (const std::string& text : {key->pair.public_key, key->pair.secret_key, key->server_key})
      fuzz::check_key(text);
  }
  if (const auto pair = read_server_keys(folder.path())) fuzz::check_key(pair->public_key);
  if (const auto keys = read_authorized_keys(folder.path())) {
    for (const AuthorizedKey& key : *keys) {
      CHECK(check_key_name(key.name), "whoever may come in has a name");
      fuzz::check_key(key.public_key);
    }
  }
  if (const auto key = read_public_key(folder.path())) CHECK(parse_public_key(to_hex(*key)), "hex");
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto signature = Signature::parse(text))
    CHECK(signature->to_string() == text, "a signature's text is its own");
  return 0;
}
