// LoopPage: PageSource over the loop: each call is a job for the loop, waited for with a bound. An
// object lives as long as its loop does.
#pragma once

#include <map>

#include "coordinator/service/admin_handler.h"
#include "coordinator/service/page_source.h"

namespace kiln {

struct ServiceLoop;

class LoopPage final : public PageSource {
 public:
  LoopPage(ServiceLoop& loop, std::shared_ptr<Keyring> keyring);

  Result<page::Snapshot> snapshot() override;
  Store& store() override;
  const Keyring* keyring() const override { return keyring_.get(); }
  const std::string& endpoint() const override;
  Status act(AdminRequest request, const std::string& who) override;

 private:
  template <class T>
  struct Awaited;
  page::Snapshot take() const;  // on the loop's thread

  ServiceLoop& loop_;
  const std::shared_ptr<Keyring> keyring_;
  // The loop's thread's own.
  std::map<uint64_t, std::shared_ptr<Awaited<Status>>> acts_;
  uint64_t last_act_ = 0;
  AdminHandler admin_;
};

}  // namespace kiln
