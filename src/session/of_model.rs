//! Sessions of models as they were read.

use crate::device::Device;
use crate::error::Error;
use crate::model::Model;
use crate::session::Session;
use crate::session::data_dependent::Prepare;
use crate::stack::with_room;
use mlc_dsl::ir::Program;

impl Model {
    /// Makes the model ready to run as it is, without any rewriting, on all cores.
    ///
    /// # Errors
    /// A run would take more memory than the machine has free.
    pub fn session(&self) -> Result<Session, Error> {
        self.session_on(&Device::cpu())
    }

    /// The same on another device, or with other limits.
    ///
    /// # Errors
    /// As there.
    pub fn session_on(&self, device: &Device) -> Result<Session, Error> {
        if self.keeps_nodes() {
            let (library, to) = (self.library.clone(), device.clone());
            let prepare = move |program: &Program, _| Session::of_program(program, &library, &to);
            return self.session_of_data(device, Box::new(prepare));
        }
        with_room(|| {
            Ok(Session::of_program(&self.program, &self.library, device)?.with_defaults(self))
        })
    }

    /// The same of a model that the data of each run decide, with parts made ready by `prepare`.
    ///
    /// # Errors
    /// A node that nothing can compute.
    pub(crate) fn session_of_data(
        &self,
        device: &Device,
        prepare: Box<Prepare>,
    ) -> Result<Session, Error> {
        self.could_be_decided()?;
        Ok(Session::of_data(self, device, prepare))
    }
}
