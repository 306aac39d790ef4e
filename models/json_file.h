// Now base/json_file.h, for every room.
#pragma once

#include "base/json_file.h"
