// Now base/files.h, for every room.
#pragma once

#include "base/files.h"
