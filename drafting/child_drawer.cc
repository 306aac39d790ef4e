#include "drafting/child_drawer-inl.h"

namespace coppice {

template class BasicChildDrawer<PhiloxDecisions>;

}  // namespace coppice
