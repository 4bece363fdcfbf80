// ArtifactHandler: answers gets and puts of other compilers' artifacts, and keeps their leases.
// Reads and writes are the store's, on its own thread, and for offered kernels those of Offers; who
// makes what is SingleFlight's. One thread, the loop's; everything it is given outlives it, and the
// loop also outlives the store's thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cache/artifact_store.h"
#include "coordinator/core/artifacts/single_flight.h"
#include "coordinator/event_loop.h"
#include "coordinator/service/session_table.h"
#include "coordinator/storage/offers.h"
#include "schema/artifact_kinds.h"

namespace kiln {

class ArtifactHandler {
 public:
  // To a peer that may be gone.
  using Reply = std::function<void(const PeerId& peer, const ArtifactReply& reply)>;
  // Whether the peer is still connected.
  using IsHere = std::function<bool(const PeerId& peer)>;

  // `offered`: on the loop's thread, when a kernel is offered (kOfferedKind) that was not before.
  ArtifactHandler(ArtifactStore& store, Offers& offers, EventLoop& loop, Reply reply,
                  IsHere is_here, std::function<void()> offered)
      : store_(store),
        offers_(offers),
        loop_(loop),
        reply_(std::move(reply)),
        is_here_(std::move(is_here)),
        offered_(std::move(offered)) {}

  // REQUIRES: the session's user has the grant (access.h). Only whoever may put a value of the kind
  // gets a lease.
  void get(const PeerId& peer, const Session& session, const ArtifactGet& request);
  void put(const PeerId& peer, const Session& session, ArtifactPut request);
  void release(const Session& session, const ArtifactRelease& request);
  // The same without a lease, for peers of another protocol. `got` and `stored` run on the loop's
  // thread. kPermissionDenied: the user's role may not; else errors of get and put.
  void read(const User& user, const ArtifactId& id, std::function<void(Result<KeptArtifact>)> got);
  void write(const User& user, ArtifactId id, std::string value,
             std::function<void(const Status&)> stored);
  void gone(const PeerId& peer);
  void tick();
  // Removes the artifacts that the owner of a revoked key put until then.
  void take_back(const std::string& owner, int64_t until_ms);

  std::vector<ArtifactStats> stats() const;  // by kind, those that were ever used

 private:
  // A get that was not answered yet.
  struct Open {
    SingleFlight::Asker asker;
    ArtifactId id;
    Viewer viewer;
    std::string flight;  // the artifact as SingleFlight names it: for one audience
    int64_t wait_ms = 0, lease_ms = 0;
  };
  void look_up(Open open, bool again);
  void looked_up(Open open, bool again, Result<KeptArtifact> found);
  void answer(const SingleFlight::Verdicts& verdicts);
  void refuse(const PeerId& peer, uint64_t request, Error error);
  void fetch(const ArtifactId& id, const Viewer& viewer, ArtifactStore::Got got);
  void store(const User& user, ArtifactId id, std::string value,
             std::function<void(const Status&)> stored);

  ArtifactStore& store_;
  Offers& offers_;
  EventLoop& loop_;
  const Reply reply_;
  const IsHere is_here_;
  const std::function<void()> offered_;
  SingleFlight flights_;
  std::map<std::pair<PeerId, uint64_t>, Open> waiting_;  // for whoever has the lease
  std::map<std::string, ArtifactStats> counts_;          // by kind; what the store counts is 0
};

}  // namespace kiln
