// For functions that host and device share.
#pragma once

#ifdef __CUDACC__
#define COPPICE_HOST_DEVICE __host__ __device__
#else
#define COPPICE_HOST_DEVICE
#endif
