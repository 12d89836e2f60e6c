/* The headers that src/bindings.rs covers; see regen.sh. ucp.h brings the ucs types it uses along. */
#include <ucp/api/ucp.h>
